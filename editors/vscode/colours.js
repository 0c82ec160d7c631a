// Colours files with the engine of VS Code, and says each place that is invalid: `node colours.js GRAMMAR FILE...`.
const fs = require("fs");
const path = require("path");
const { loadWASM, OnigScanner, OnigString } = require("vscode-oniguruma");
const { Registry, INITIAL, parseRawGrammar } = require("vscode-textmate");

async function main([grammarFile, ...files]) {
  const wasm = path.join(path.dirname(require.resolve("vscode-oniguruma")), "onig.wasm");
  await loadWASM(fs.readFileSync(wasm).buffer);
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new OnigScanner(patterns),
      createOnigString: (text) => new OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(grammarFile, "utf-8"), grammarFile),
  });
  const grammar = await registry.loadGrammar("source.dslc");
  let wrong = 0;
  const counts = {};
  for (const file of files) {
    let state = INITIAL;
    fs.readFileSync(file, "utf-8").split(/\r?\n/).forEach((line, number) => {
      const found = grammar.tokenizeLine(line, state);
      state = found.ruleStack;
      for (const token of found.tokens) {
        const scope = token.scopes[token.scopes.length - 1];
        counts[scope] = (counts[scope] ?? 0) + 1;
        if (token.scopes.some((one) => one.startsWith("invalid"))) {
          wrong += 1;
          console.log(`${file}:${number + 1}:${token.startIndex + 1} ${line.slice(token.startIndex, token.endIndex)}`);
        }
      }
    });
  }
  console.log(JSON.stringify(counts));
  process.exitCode = wrong ? 1 : 0;
}

main(process.argv.slice(2));
