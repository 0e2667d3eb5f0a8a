//! What a command prints: JSON for programs, tables for people, colours on a terminal only.

use std::env;
use std::io::{self, IsTerminal, Write, stderr, stdout};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use serde::Serialize;

use crate::exit::{FAILURE, Failure, Outcome};

/// How good a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Uneasy,
    Bad,
    Plain,
}

/// One field of a table.
pub struct Field {
    text: String,
    tone: Tone,
}

impl<T: Into<String>> From<T> for Field {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}

/// A field with a tone.
pub fn toned(text: impl Into<String>, tone: Tone) -> Field {
    Field { text: text.into(), tone }
}

/// The tone of a state word of drives, partitions, file systems and clusters.
pub fn tone_of(state: &str) -> Tone {
    match state {
        "ok" | "active" | "serving" | "ready" | "up" => Tone::Good,
        "degraded" | "adding" | "draining" | "recovering" | "removing" | "slow" => Tone::Uneasy,
        "unavailable" | "failed" | "missing" | "failing" | "full" | "stopped" | "waiting" | "down" => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// Prints `value` as JSON.
pub fn json(value: &impl Serialize) -> Outcome {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure { code: FAILURE, message: error.to_string() })?;
    lines(&[text])
}

/// Prints a table; columns whose title ends in `>` are aligned to the right.
pub fn table(titles: &[&str], rows: Vec<Vec<Field>>) -> Outcome {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    // Rows stay whole, also on a narrow terminal: a wrapped path or UUID cannot be copied.
    table.set_content_arrangement(ContentArrangement::Disabled);
    if colours() {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    table.set_header(titles.iter().map(|title| Cell::new(title.trim_end_matches('>')).add_attribute(Attribute::Bold)));
    for row in rows {
        table.add_row(row.into_iter().map(|field| {
            let cell = Cell::new(field.text);
            colour(field.tone).map_or(cell.clone(), |colour| cell.fg(colour))
        }));
    }
    for (column, title) in table.column_iter_mut().zip(titles) {
        column.set_padding((0, 2));
        if title.ends_with('>') {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    lines(&table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>())
}

/// Prints lines. A reader that went away (`braid fs | head -1`) is no failure.
pub fn lines(lines: &[String]) -> Outcome {
    let mut out = stdout().lock();
    let written = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure { code: FAILURE, message: format!("writing to stdout: {error}") })
        }
        _ => Ok(()),
    }
}

/// Says on stderr what is missing in what is printed.
pub fn warn(text: &str) {
    // Without stderr there is nobody to tell.
    let _ = writeln!(stderr(), "braid: {text}");
}

/// `text` in the colour of `tone`, if there are colours.
pub fn paint(text: &str, tone: Tone) -> String {
    let code = match tone {
        Tone::Good => "32",
        Tone::Uneasy => "33",
        Tone::Bad => "31",
        Tone::Plain => return text.to_owned(),
    };
    if colours() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn colours() -> bool {
    stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn colour(tone: Tone) -> Option<Color> {
    match tone {
        Tone::Good => Some(Color::Green),
        Tone::Uneasy => Some(Color::Yellow),
        Tone::Bad => Some(Color::Red),
        Tone::Plain => None,
    }
}
