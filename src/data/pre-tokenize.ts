/** Cuts text into the pieces that byte-level BPE merges within, by regular expressions in Hugging Face's (Oniguruma) notation. */

/** GPT-2's expression: contractions, words, numbers, punctuation with one space before them, white space. */
export const GPT2_PATTERN =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/**
 * The expression of the BPEs learned here, for prose and code: GPT-2's contractions and words, digits one by one,
 * punctuation with one space before it and all white space behind it, other white space as a whole. So the end of a
 * statement, of its line and the next line's indentation are one piece; C takes a tenth fewer tokens than with GPT-2's
 * expression.
 */
export const LEARNED_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+\\s*|\\s+";

export interface Split {
  readonly pattern: RegExp;
  /** Whether text between matches is a piece too, or dropped. */
  readonly keepBetween: boolean;
}

/** Applies the splits one after the other and hands on each non-empty piece of the last, in order. */
export function forEachPiece(
  text: string,
  splits: readonly Split[],
  take: (piece: string) => void,
  level = 0,
): void {
  if (level === splits.length) {
    if (text !== "") take(text);
    return;
  }
  const { pattern, keepBetween } = splits[level];
  const last = level + 1 === splits.length;
  let end = 0;
  pattern.lastIndex = 0;
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    const piece = match[0];
    if (piece === "") {
      pattern.lastIndex += (text.codePointAt(pattern.lastIndex) ?? 0) > 0xffff ? 2 : 1;
      continue;
    }
    const next = pattern.lastIndex;
    if (keepBetween && match.index > end) forEachPiece(text.slice(end, match.index), splits, take, level + 1);
    if (last) take(piece);
    else forEachPiece(piece, splits, take, level + 1);
    end = next;
  }
  if (keepBetween && end < text.length) forEachPiece(text.slice(end), splits, take, level + 1);
}

const CLASSES: Readonly<Record<string, string>> = {
  // Oniguruma's white space is Unicode's; JavaScript's \s leaves out U+0085 and adds U+FEFF
  s: "\\p{White_Space}",
  S: "\\P{White_Space}",
  d: "\\p{Nd}",
  D: "\\P{Nd}",
};
const GROUPS = ["(?:", "(?=", "(?!", "(?<=", "(?<!"];

/**
 * A JavaScript expression that matches the same text: white space and digit classes spelled out, `(?i:...)` written as
 * both cases of its ASCII letters, needless escapes removed. Throws a plain Error that names the part which has no
 * translation (possessive quantifiers, anchors, other groups and escapes, nested classes).
 */
export function translatePattern(source: string): RegExp {
  let out = "";
  let inClass = false;
  /** For each open group whether it ignores case. */
  const groups: boolean[] = [];
  const ignoresCase = () => groups[groups.length - 1] ?? false;
  let i = 0;
  while (i < source.length) {
    const rest = source.slice(i, i + 4);
    const char = source[i];
    if (char === "\\") {
      const [text, length] = translateEscape(source, i);
      out += text;
      i += length;
    } else if (inClass) {
      if (char === "[" || rest.startsWith("&&"))
        throw new Error(`a set inside a set ("${source.slice(i, i + 8)}")`);
      if (ignoresCase() && /[A-Za-z]/.test(char))
        throw new Error(`letters in a set inside (?i:) ("${char}")`);
      if (char === "]") inClass = false;
      out += char;
      i++;
    } else if (char === "[") {
      if (/^\[\^?\]/.test(rest)) throw new Error(`a set that starts with "]" ("${rest}")`);
      inClass = true;
      out += char;
      i++;
    } else if (char === "^" || char === "$") {
      throw new Error(`the anchor "${char}"`);
    } else if (char === ".") {
      out += "[^\\n]";
      i++;
    } else if (char === "(") {
      const special = rest.startsWith("(?i:") ? "(?i:" : GROUPS.find((group) => rest.startsWith(group));
      if (rest[1] === "?" && special === undefined) throw new Error(`the group "${rest}"`);
      groups.push(special === "(?i:" || ignoresCase());
      out += special === "(?i:" ? "(?:" : (special ?? "(?:");
      i += special?.length ?? 1;
    } else if (char === ")") {
      groups.pop();
      out += char;
      i++;
    } else if (/[?*+{]/.test(char)) {
      const quantifier = /^(?:[?*+]|\{\d+(?:,\d*)?\})\??/.exec(source.slice(i, i + 16))?.[0] ?? char;
      const after = source[i + quantifier.length];
      if (after === "+" || after === "*") throw new Error(`the quantifier "${quantifier}${after}"`);
      out += quantifier;
      i += quantifier.length;
    } else {
      out += ignoresCase() && /[A-Za-z]/.test(char) ? `[${char.toLowerCase()}${char.toUpperCase()}]` : char;
      i++;
    }
  }
  return new RegExp(out, "gu");
}

/** The translation of the escape at `i`, and its length in the source. */
function translateEscape(source: string, i: number): [string, number] {
  const braced = /^\\(?:[pP]|u|x)\{[^}]*\}|^\\x[0-9A-Fa-f]{2}|^\\u[0-9A-Fa-f]{4}/.exec(
    source.slice(i, i + 64),
  );
  if (braced) return [braced[0].replace("\\x{", "\\u{"), braced[0].length];
  const next = source[i + 1];
  if (next === undefined) throw new Error("a backslash at its end");
  if (Object.hasOwn(CLASSES, next)) return [CLASSES[next], 2];
  if ("rntfv".includes(next)) return [`\\${next}`, 2];
  if (/[A-Za-z0-9]/.test(next)) throw new Error(`the escape "\\${next}"`);
  return ["^$\\.*+?()[]{}|/-".includes(next) ? (next === "-" ? "\\x2d" : `\\${next}`) : next, 2];
}
