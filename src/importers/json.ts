/** JSON as Python writes it: NaN and Infinity stand bare. */

/** The value of a JSON text; bare NaN, Infinity and -Infinity become texts, which `numberOf` reads. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const quoted = quoteNonFinite(text);
    if (quoted === undefined) throw error;
    return JSON.parse(quoted);
  }
}

const WORDS = ["-Infinity", "Infinity", "NaN"] as const;

/** Puts bare non-finite words in quotes, outside of strings; undefined when there are none. */
function quoteNonFinite(text: string): string | undefined {
  const parts: string[] = [];
  let copied = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 34) {
      for (at++; at < text.length; at++) {
        const inner = text.charCodeAt(at);
        if (inner === 92) at++;
        else if (inner === 34) break;
      }
    } else if (code === 45 || code === 73 || code === 78) {
      const word = WORDS.find((candidate) => text.startsWith(candidate, at));
      if (word === undefined) continue;
      parts.push(text.slice(copied, at), `"${word}"`);
      copied = at + word.length;
      at = copied - 1;
    }
  }
  if (parts.length === 0) return undefined;
  parts.push(text.slice(copied));
  return parts.join("");
}

const DEEPEST = 6;

/** An object's leaves by path, joined with dots; arrays and what lies deeper than six levels are left out. */
export function flatten(value: object): Map<string, unknown> {
  const leaves = new Map<string, unknown>();
  const walk = (object: object, prefix: string, depth: number): void => {
    for (const [key, inner] of Object.entries(object)) {
      if (typeof inner !== "object" || inner === null) leaves.set(prefix + key, inner);
      else if (!Array.isArray(inner) && depth < DEEPEST) walk(inner, `${prefix}${key}.`, depth + 1);
    }
  };
  walk(value, "", 1);
  return leaves;
}
