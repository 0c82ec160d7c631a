// Copies the grammar, which is made from the language's own, and bundles the client into one file.
const { buildSync } = require("esbuild");
const fs = require("fs");
const path = require("path");

const grammar = path.join(__dirname, "..", "..", "grammar", "dslc.tmLanguage.json");
fs.mkdirSync(path.join(__dirname, "syntaxes"), { recursive: true });
fs.copyFileSync(grammar, path.join(__dirname, "syntaxes", "dslc.tmLanguage.json"));
buildSync({
  entryPoints: [path.join(__dirname, "extension.js")],
  bundle: true,
  platform: "node",
  target: "node18",
  external: ["vscode"],
  minify: true,
  outfile: path.join(__dirname, "out", "extension.js"),
});
