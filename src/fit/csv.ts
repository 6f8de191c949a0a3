/** CSV as RFC 4180 has it: text to records, a value to a field. */
import { InputError } from "../errors.ts";

/**
 * Records of a CSV text, each with the line it starts on; a quoted field may hold commas, line ends and doubled
 * quotes. Blank lines are skipped. Throws InputError, in which `name` is what the text is called.
 */
export function csvRows(text: string, name: string): { line: number; fields: string[] }[] {
  const rows: { line: number; fields: string[] }[] = [];
  let at = 0;
  let line = 1;
  while (at < text.length) {
    const start = line;
    const fields: string[] = [];
    for (;;) {
      let field: string;
      if (text[at] === '"') {
        field = "";
        for (;;) {
          const quote = text.indexOf('"', at + 1);
          if (quote < 0) throw new InputError(`${name}, line ${start}: a quoted field is never closed`);
          field += text.slice(at + 1, quote);
          at = quote + 1;
          if (text[at] !== '"') break;
          field += '"';
        }
        line += field.split("\n").length - 1;
        if (at < text.length && !",\r\n".includes(text[at])) {
          throw new InputError(`${name}, line ${line}: ${JSON.stringify(text[at])} follows a closing quote`);
        }
      } else {
        const from = at;
        while (at < text.length) {
          const code = text.charCodeAt(at);
          if (code === 44 || code === 10 || code === 13) break;
          at++;
        }
        field = text.slice(from, at);
      }
      fields.push(field);
      if (text[at] !== ",") break;
      at++;
    }
    if (text[at] === "\r") at++;
    if (text[at] === "\n") at++;
    line++;
    if (fields.length > 1 || fields[0].trim() !== "") rows.push({ line: start, fields });
  }
  return rows;
}

/** A value as a field, quoted where needed. */
export function csvField(value: string | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const text = String(value);
  // A field with outer blanks is quoted as well, for readers that trim.
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
