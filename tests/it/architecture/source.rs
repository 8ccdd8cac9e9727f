//! The sources below `src/`, and what of them is code: neither comment nor string nor test.

use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn sources() -> Vec<(String, String)> {
    let root = Path::new("src");
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let path = file
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&file).unwrap();
            (path, text)
        })
        .filter(|(path, _)| !path.ends_with("/tests.rs") && !path.contains("/tests/"))
        .collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// One-based numbers of the lines that hold `word`, not as part of a longer identifier or path.
pub(super) fn lines_with<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.lines().enumerate().filter_map(move |(n, line)| {
        let hit = line.match_indices(word).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            // `time::` is the crate, not `std::time::`; `clock::now` is also `crate::clock::now`.
            let inner = |c| part(c) || (c == ':' && word.ends_with("::"));
            let free = word.starts_with('.') || !before.is_some_and(inner);
            free && (!word.ends_with(part) || word.ends_with("Tcp") || !after.is_some_and(part))
        });
        hit.then_some(n + 1)
    })
}

/// The source with comments, strings and `#[cfg(test)]` items blanked; line numbers stay.
pub(super) fn code_of(source: &str) -> String {
    without_tests(&without_text(source))
}

fn without_text(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = text_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// Where the comment, string or character literal that begins at `at` ends; `at` if none does.
fn text_end(chars: &[char], at: usize) -> usize {
    let get = |n: usize| chars.get(n).copied().unwrap_or('\n');
    let word_before = at > 0 && (get(at - 1).is_alphanumeric() || get(at - 1) == '_');
    match get(at) {
        '/' if get(at + 1) == '/' => (at..chars.len())
            .find(|n| chars[*n] == '\n')
            .unwrap_or(chars.len()),
        '/' if get(at + 1) == '*' => block_end(chars, at),
        '"' => quoted_end(chars, at),
        'r' if !word_before || get(at - 1) == 'b' => raw_end(chars, at).unwrap_or(at),
        // A character, not a lifetime: an escape, or one character and the closing quote.
        '\'' if get(at + 1) == '\\' => (at + 3..chars.len())
            .find(|n| chars[*n] == '\'')
            .map_or(chars.len(), |n| n + 1),
        '\'' if get(at + 2) == '\'' => at + 3,
        _ => at,
    }
}

fn block_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut n = at;
    while n + 1 < chars.len() {
        match (chars[n], chars[n + 1]) {
            ('/', '*') => (depth, n) = (depth + 1, n + 2),
            ('*', '/') => (depth, n) = (depth - 1, n + 2),
            _ => n += 1,
        }
        if depth == 0 {
            return n;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize) -> usize {
    let mut n = at + 1;
    while n < chars.len() {
        match chars[n] {
            '\\' => n += 2,
            '"' => return n + 1,
            _ => n += 1,
        }
    }
    chars.len()
}

fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let closes = |n: &usize| {
        chars[*n] == '"'
            && chars[n + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes
    };
    (at + 2 + hashes..chars.len())
        .find(closes)
        .map(|n| n + 1 + hashes)
}

fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let end = item_end(&out, start);
        let blank: String = out[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// The end of the item that begins with an attribute at `start`: its closing brace, or its semicolon.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_i32;
    for (n, c) in code[start..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    return start + n + 1;
                }
            }
            ';' if depth == 0 => return start + n + 1,
            _ => {}
        }
    }
    code.len()
}
