//! What people and programs read: tables and documents on stdout, progress on stderr.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use comfy_table::{Cell, Color, Table};
use serde::Serialize;
use time::OffsetDateTime;

use crate::clock;
use crate::wire::report::{ConditionType, Phase, Status};
use crate::wire::word::Word;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns for people
    Table,
    /// More columns
    Wide,
    Json,
    Yaml,
    /// One name a line
    Name,
}

/// `-o` of every verb that shows something.
#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// How to print: columns for people, or a form for programs
    #[arg(
        short,
        long = "output",
        value_name = "FORMAT",
        default_value = "table",
        hide_possible_values = false
    )]
    pub output: Format,
}

impl Output {
    /// The flag as it was given; nothing where it says what is meant without it.
    pub(super) fn typed(&self) -> Vec<String> {
        let form = self.output.to_possible_value();
        let form = form.filter(|_| self.output != Format::Table);
        form.map_or_else(Vec::new, |form| {
            vec!["-o".to_owned(), form.get_name().to_owned()]
        })
    }
}

/// One column of a table of `T`.
pub(super) struct Column<T> {
    pub title: &'static str,
    /// Shown by `-o wide` only.
    pub wide: bool,
    pub cell: fn(&T, OffsetDateTime) -> String,
}

impl<T> Column<T> {
    pub(super) const fn new(title: &'static str, cell: fn(&T, OffsetDateTime) -> String) -> Self {
        Self {
            title,
            wide: false,
            cell,
        }
    }

    pub(super) const fn wide(title: &'static str, cell: fn(&T, OffsetDateTime) -> String) -> Self {
        Self {
            title,
            wide: true,
            cell,
        }
    }
}

/// Stdout refused to take what we said; the cause says whether its reader had enough.
#[derive(Debug, thiserror::Error)]
#[error("write to stdout")]
pub(super) struct Closed(#[source] pub io::Error);

/// Writes data to stdout, whole.
pub(super) fn emit(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Closed(e).into())
}

/// A line for people, on stderr.
pub(super) fn progress_line(text: &str) {
    // A closed stderr must not end the work that it tells of.
    let _written = writeln!(io::stderr().lock(), "{}", tame(text));
}

/// The same in the place of what the terminal's line holds.
pub(super) fn progress_line_anew(text: &str) {
    let _written = writeln!(io::stderr().lock(), "\r\x1b[2K{}", tame(text));
}

/// As it may stand in a terminal: what a cluster says must not move the cursor, or change what was written before.
pub(super) fn tame(text: &str) -> Cow<'_, str> {
    let wild = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(wild) {
        text.replace(wild, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Prints a list in the chosen form.
pub(super) fn list<T: Serialize>(
    format: Format,
    items: &[T],
    columns: &[Column<T>],
    name: fn(&T) -> String,
    empty: &str,
) -> Result<()> {
    if items.is_empty() && matches!(format, Format::Table | Format::Wide) {
        progress_line(empty);
        return Ok(());
    }
    emit(&render_list(format, items, columns, name, clock::now())?)
}

fn render_list<T: Serialize>(
    format: Format,
    items: &[T],
    columns: &[Column<T>],
    name: fn(&T) -> String,
    now: OffsetDateTime,
) -> Result<String> {
    Ok(match format {
        Format::Table => table(items, columns, false, now),
        Format::Wide => table(items, columns, true, now),
        Format::Json | Format::Yaml => document(format, &items)?,
        Format::Name => items.iter().map(|item| name(item) + "\n").collect(),
    })
}

/// One value as JSON or YAML; the callers print their own words for people.
pub(super) fn document(format: Format, value: &impl Serialize) -> Result<String> {
    let value = serde_json::to_value(value).context("print as JSON")?;
    if format == Format::Yaml {
        return crate::yaml::print(&value).context("print as YAML");
    }
    Ok(serde_json::to_string_pretty(&value).context("print as JSON")? + "\n")
}

/// For programs, after a verb that changed something: its words for people are on stderr.
pub(super) fn done(format: Format, name: &str, value: &impl Serialize) -> Result<()> {
    match format {
        Format::Json | Format::Yaml => emit(&document(format, value)?),
        Format::Name => emit(&format!("{name}\n")),
        Format::Table | Format::Wide => Ok(()),
    }
}

fn table<T>(items: &[T], columns: &[Column<T>], wide: bool, now: OffsetDateTime) -> String {
    let columns: Vec<_> = columns.iter().filter(|c| wide || !c.wide).collect();
    let rows = items
        .iter()
        .map(|item| columns.iter().map(|c| (c.cell)(item, now)).collect());
    rows_text(
        Some(columns.iter().map(|c| c.title.to_owned()).collect()),
        rows,
    )
}

/// Aligned columns with two blanks between them and none at the line's end.
pub(super) fn rows_text(
    header: Option<Vec<String>>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if !paints(io::stdout().is_terminal()) {
        table.force_no_tty();
    }
    if let Some(header) = header {
        table.set_header(header);
    }
    for row in rows {
        table.add_row(row.into_iter().map(|text| {
            paint(if text.is_empty() {
                "-".to_owned()
            } else {
                tame(&text).into_owned()
            })
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn paint(text: String) -> Cell {
    let color = match text.trim_end() {
        "Healthy" | "healed" | "up" | "ok" | "done" => Some(Color::Green),
        "Conflict" | "Offline" | "Broken" | "down" | "failed" | "deny" => Some(Color::Red),
        "Healing" | "Degraded" | "Installing" | "Joining" | "Pending" | "open" | "waiting" => {
            Some(Color::Yellow)
        }
        _ => None,
    };
    match color {
        Some(color) => Cell::new(text).fg(color),
        None => Cell::new(text),
    }
}

/// How many of a list are asked for: one at least.
pub(super) fn count(text: &str) -> Result<usize, String> {
    let count = text.parse::<usize>().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "give a number, 1 or more".to_owned())
}

/// `1 record`, `2 records`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// That a list of the newest so many leaves out older ones.
pub(super) fn cut(limit: usize) -> String {
    format!("there are more than the newest {limit}: see them with a higher --limit")
}

/// Colours are for terminals, and not where `NO_COLOR` is set.
pub(super) fn paints(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// How long ago an RFC 3339 time was: `4s`, `12m`, `3h`, `9d`.
pub(super) fn ago(at: &str, now: OffsetDateTime) -> String {
    clock::parse_rfc3339(at).map_or_else(|| at.to_owned(), |at| span(now - at))
}

fn span(length: time::Duration) -> String {
    let seconds = length.whole_seconds().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The phase in its own word.
pub(super) fn phase(phase: &Word<Phase>) -> String {
    phase.shown(|phase| format!("{phase:?}"))
}

/// The condition's type in its own word.
pub(super) fn kind(kind: &Word<ConditionType>) -> String {
    kind.shown(|kind| format!("{kind:?}"))
}

/// A condition's status in its own word.
pub(super) fn status(status: &Word<Status>) -> String {
    status.shown(|status| format!("{status:?}"))
}

/// The first line of a text, cut to `limit` characters.
pub(super) fn short(text: &str, limit: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= limit {
        return line.to_owned();
    }
    line.chars()
        .take(limit.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column<(String, u32)>; 3] = [
        Column::new("NAME", |item, _| item.0.clone()),
        Column::wide("SIZE", |item, _| item.1.to_string()),
        Column::new("NOTE", |_, _| String::new()),
    ];

    fn print(format: Format) -> String {
        let items = [("eu1".to_owned(), 7), ("a-longer-name".to_owned(), 8)];
        render_list(
            format,
            &items,
            &COLUMNS,
            |item| format!("cluster/{}", item.0),
            clock::now(),
        )
        .unwrap()
    }

    /// H59
    #[test]
    fn a_list_prints_in_each_form() {
        assert_eq!(
            print(Format::Table),
            "NAME           NOTE\neu1            -\na-longer-name  -\n"
        );
        assert_eq!(
            print(Format::Wide),
            "NAME           SIZE  NOTE\neu1            7     -\na-longer-name  8     -\n"
        );
        assert_eq!(print(Format::Name), "cluster/eu1\ncluster/a-longer-name\n");
        let json: serde_json::Value = serde_json::from_str(&print(Format::Json)).unwrap();
        assert_eq!(json, serde_json::json!([["eu1", 7], ["a-longer-name", 8]]));
    }

    /// L42: a cluster says why it waits, and what is wrong with it; the terminal is not to obey that.
    #[test]
    fn what_a_cluster_says_moves_no_cursor() {
        let said = "mended\u{1b}[2K\rall is well\u{9b}1A\u{7}";
        assert_eq!(
            rows_text(None, [vec!["eu1".to_owned(), said.to_owned()]]),
            "eu1  mended\u{fffd}[2K\u{fffd}all is well\u{fffd}1A\u{fffd}\n"
        );
    }

    #[test]
    fn one_of_a_list_is_asked_for_at_least() {
        assert_eq!([count("1"), count("500")], [Ok(1), Ok(500)]);
        let told = Err("give a number, 1 or more".to_owned());
        for text in ["0", "-1", "", "many", "99999999999999999999"] {
            assert_eq!(count(text), told, "{text}");
        }
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(counted(0, "record"), "0 records");
    }

    #[test]
    fn ages_are_short() {
        let now = clock::parse_rfc3339("2026-01-10T00:00:00Z").unwrap();
        for (at, text) in [
            ("2026-01-10T00:00:05Z", "0s"),
            ("2026-01-09T23:59:01Z", "59s"),
            ("2026-01-09T23:50:00Z", "10m"),
            ("2026-01-09T20:00:00Z", "4h"),
            ("2026-01-01T00:00:00Z", "9d"),
            ("never", "never"),
        ] {
            assert_eq!(ago(at, now), text);
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(short("ärger\nmore", 9), "ärger");
        assert_eq!(short("ärgerlich", 5), "ärge…");
    }
}
