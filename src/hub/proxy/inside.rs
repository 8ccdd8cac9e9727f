//! What a request asks to be run or reached inside a Pod, for the record: of `exec` and `attach` the container, of `exec` the
//! command, of a port-forward the ports, as far as the query names them. Pure.

use crate::hub::audit::Commands;
use crate::kubeapi::path::{self, RequestInfo};

/// Bytes of one word as it is written, its quotes left out, and of a command with what is said of its rest.
const WORD: usize = 256;
const ALL: usize = 1024;
/// For what is said of the rest.
const REST: usize = 32;

/// Each as a shell would take it; None = it is not named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inside {
    pub(super) container: Option<String>,
    pub(super) command: Option<String>,
    pub(super) ports: Option<String>,
}

/// What an API server drops of a query, such as a part with a semicolon, is told all the same: it was asked for.
pub(super) fn inside(info: &RequestInfo, query: Option<&str>, commands: Commands) -> Inside {
    match info.subresource.as_str() {
        "exec" => Inside {
            container: container(query),
            command: match commands {
                Commands::On => words(path::values(query, "command")),
                Commands::Off => None,
            },
            ports: None,
        },
        "attach" => Inside {
            container: container(query),
            ..Inside::default()
        },
        "portforward" => Inside {
            ports: ports(query),
            ..Inside::default()
        },
        _ => Inside::default(),
    }
}

/// The first one counts (`Convert_Slice_string_To_string` of apimachinery).
fn container(query: Option<&str>) -> Option<String> {
    let name = path::values(query, "container").next()?;
    (!name.is_empty()).then(|| word(&name))
}

fn ports(query: Option<&str>) -> Option<String> {
    let ports: Vec<String> = path::values(query, "ports").collect();
    (!ports.is_empty()).then(|| word(&ports.join(",")))
}

/// All of them, as far as they have room.
fn words(all: impl Iterator<Item = String>) -> Option<String> {
    let (mut text, mut rest) = (String::new(), 0_usize);
    for next in all {
        let next = word(&next);
        if rest > 0 || text.len() + 1 + next.len() > ALL - REST {
            rest += 1;
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&next);
    }
    if rest > 0 {
        text = format!("{text} … and {rest} more");
    }
    (!text.is_empty()).then_some(text)
}

/// One word, quoted where it needs that (`$'…'` of bash where a quote or what moves a cursor is in it). A `…` outside of quotes
/// stands for the rest of one that is too long.
fn word(raw: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if (1..=WORD).contains(&raw.len()) && raw.chars().all(plain) {
        return raw.to_owned();
    }
    let wild = raw.chars().any(|c| c == '\'' || !is_shown(c));
    let (mut text, mut whole) = (String::new(), true);
    for c in raw.chars() {
        let piece = if wild { escaped(c) } else { c.to_string() };
        if text.len() + piece.len() > WORD {
            whole = false;
            break;
        }
        text.push_str(&piece);
    }
    let begin = if wild { "$'" } else { "'" };
    let end = if whole { "'" } else { "'…" };
    format!("{begin}{text}{end}")
}

fn escaped(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\'' | '\\' => format!("\\{c}"),
        c if is_shown(c) => c.to_string(),
        c if c <= '\u{ffff}' => format!("\\u{:04x}", u32::from(c)),
        c => format!("\\U{:08x}", u32::from(c)),
    }
}

/// Whether a reader sees it as what it is: no control character, no space but the one, nothing that turns the line round.
fn is_shown(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn of(subresource: &str, query: &str, commands: Commands) -> [Option<String>; 3] {
        let path = format!("/api/v1/namespaces/a/pods/x/{subresource}");
        let info = path::classify(&Method::GET, &path, Some(query)).unwrap();
        let Inside {
            container,
            command,
            ports,
        } = inside(&info, Some(query), commands);
        [container, command, ports]
    }

    fn some(texts: [&str; 3]) -> [Option<String>; 3] {
        texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
    }

    #[test]
    fn what_is_run_and_reached_is_read_from_the_query() {
        let exec = "container=web&command=sh&command=-c&command=rm+-rf+%2Fdata&tty=1&ports=80";
        for (subresource, query, told) in [
            ("exec", exec, ["web", "sh -c 'rm -rf /data'", ""]),
            ("attach", exec, ["web", "", ""]),
            ("portforward", exec, ["", "", "80"]),
            ("log", exec, ["", "", ""]),
            ("exec", "container=&command=", ["", "''", ""]),
            ("exec", "container=a&container=b", ["a", "", ""]),
            (
                "portforward",
                "ports=80,443&ports=5432",
                ["", "", "80,443,5432"],
            ),
            ("portforward", "ports=%0a1", ["", "", "$'\\n1'"]),
            ("portforward", "", ["", "", ""]),
        ] {
            let found = of(subresource, query, Commands::On);
            assert_eq!(found, some(told), "{subresource} {query}");
        }
        assert_eq!(of("exec", exec, Commands::Off), some(["web", "", ""]));
    }

    /// Nobody moves a cursor, ends a line or has one word read as two.
    #[test]
    fn a_word_is_written_as_a_shell_takes_it() {
        for (raw, written) in [
            ("psql", "psql"),
            ("--set=a,b:c/d", "--set=a,b:c/d"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$HOME \"x\\y\"", "'$HOME \"x\\y\"'"),
            ("…", "'…'"),
            ("it's\\n", "$'it\\'s\\\\n'"),
            ("\u{1b}[2K\r\n\t\0", "$'\\u001b[2K\\r\\n\\t\\u0000'"),
            (
                "\u{202e}\u{a0}\u{e0001}é🚢",
                "$'\\u202e\\u00a0\\U000e0001é🚢'",
            ),
        ] {
            assert_eq!(word(raw), written, "{raw:?}");
        }
    }

    #[test]
    fn words_have_bounds_each_and_together() {
        let long = |c: &str, count: usize| c.repeat(count);
        assert_eq!(word(&long("x", 256)), long("x", 256));
        assert_eq!(word(&long("x", 257)), format!("'{}'…", long("x", 256)));
        assert_eq!(word(&long("é", 200)), format!("'{}'…", long("é", 128)));
        let bells = format!("$'{}'…", long("\\u0007", 42));
        assert_eq!(word(&long("\u{7}", 5_000)), bells);
        let many = |count: usize| words((0..count).map(|_| long("y", 199)));
        let four = vec![long("y", 199); 4].join(" ");
        assert_eq!(many(4), Some(four.clone()));
        assert_eq!(many(9_004), Some(format!("{four} … and 9000 more")));
        let short = words(std::iter::repeat_n("z".to_owned(), 100_000)).unwrap();
        assert!((900..=ALL).contains(&short.len()), "{}", short.len());
        assert_eq!(words(std::iter::empty()), None);
    }
}
