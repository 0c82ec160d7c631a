// Starts `dslc lsp` and connects it to the editor.
const fs = require("fs");
const path = require("path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function command() {
  const [program, ...args] = vscode.workspace.getConfiguration("dslc").get("command");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const beside = folder && program.includes("/") ? path.resolve(folder, program) : program;
  return { command: beside !== program && fs.existsSync(beside) ? beside : program, args, options: { cwd: folder } };
}

async function start() {
  client = new LanguageClient("dslc", "dslc", command(), {
    documentSelector: [{ language: "dslc" }],
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/{*.rules,pyproject.toml,dslc.lock}") },
  });
  try {
    await client.start();
  } catch (problem) {
    vscode.window.showErrorMessage(
      `The server of dslc did not start: ${problem}. Install it with \`pip install 'dslc[lsp]'\`, or say in the setting dslc.command where it is.`
    );
  }
}

exports.activate = async (context) => {
  context.subscriptions.push(
    vscode.commands.registerCommand("dslc.restart", async () => {
      await exports.deactivate();
      await start();
    })
  );
  await start();
};

exports.deactivate = async () => {
  const old = client;
  client = undefined;
  if (old?.isRunning()) await old.stop();
};
