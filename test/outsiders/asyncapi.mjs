// Reads an AsyncAPI document from standard input with the parser of the AsyncAPI initiative and prints what it finds: one
// line for each error or warning, then how many messages the document has.
import { createRequire } from 'node:module';

const { Parser } = createRequire(process.argv[2] + '/')('@asyncapi/parser');
let text = '';
for await (const part of process.stdin) text += part;
const { document, diagnostics } = await new Parser().parse(text);
for (const d of diagnostics) {
  if (d.severity < 2) console.log(`${d.code} at ${d.path.join('.')}: ${d.message}`); // 0 error, 1 warning; beyond it is advice
}
console.log(document ? `${document.version()}, ${document.messages().length} messages` : 'no document');
