//! `braid events`: what happened, as the hosts have kept it.

use braid_cluster::view::events::{EventQuery, EventView, EventsView};
use clap::Args;

use crate::client::{Client, escape};
use crate::exit::{Failure, Outcome};
use crate::measure::moment;
use crate::out::{self, Field, Tone, toned};
use crate::whole::Whole;

/// What stands below the help.
pub const MOMENTS: &str = "\
TIME is RFC 3339 (2026-11-25T16:41:59Z, or a day alone), or so long ago (1h, 1d5h), or now. Each host keeps its own
events, some 8 MiB of them; of what comes in crowds (objects that are missing, data that leaves flash early) one is shown
each minute, with how often it was.";

#[derive(Args, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Those that matter so much, and more: debug, info, warning, minor, major or critical [default: info]
    #[arg(long, value_name = "SEVERITY")]
    severity: Option<String>,
    /// Only of this category; may be repeated (`braid events types` lists them)
    #[arg(long, value_name = "CATEGORY")]
    category: Vec<String>,
    /// Only of this type; may be repeated (`braid events types` lists them)
    #[arg(long = "type", value_name = "TYPE")]
    kind: Vec<String>,
    /// Not of this type; may be repeated
    #[arg(long, value_name = "TYPE")]
    exclude_type: Vec<String>,
    /// From then on
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    start_time: Option<String>,
    /// Until then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    end_time: Option<String>,
    /// At most so many [default: 50]
    #[arg(long, value_name = "COUNT")]
    num_results: Option<u32>,
    /// desc: the newest, and they first; asc: the oldest [default: desc]
    #[arg(long, value_name = "DIRECTION")]
    direction: Option<String>,
    /// With those that only concern Braid itself, if no severity is named
    #[arg(long)]
    show_internal: bool,
    /// Only about this file system
    #[arg(long, value_name = "FS")]
    filesystem: Option<String>,
}

/// Those of all hosts, or only those of this one.
pub fn run(whole: &Whole, events: &Events, local: bool) -> Outcome {
    let client = Client::find(whole.dir.as_deref())?;
    let EventsView { events, silent_hosts } = client.get(&format!("/events{}", asked(&events.query(local))))?;
    for host in &silent_hosts {
        out::warn(&format!("host {host} does not answer: its events are missing"));
    }
    if whole.json {
        return out::json(&events);
    }
    if events.is_empty() {
        return out::lines(&["no such events".to_owned()]);
    }
    let titles = ["TIME", "SEVERITY", "CATEGORY", "TYPE", "HOST", "TEXT"];
    out::table(&titles, events.into_iter().map(row).collect())
}

/// Nothing was said of which events are wanted before another word: it would not count.
pub fn none(events: &Events) -> Outcome {
    if *events == Events::default() {
        return Ok(());
    }
    Err(Failure::usage("what says which events are wanted stands behind `local`, and not before another word"))
}

impl Events {
    fn query(&self, local: bool) -> EventQuery {
        let list = |words: &[String]| (!words.is_empty()).then(|| words.join(","));
        EventQuery {
            severity: self.severity.clone(),
            category: list(&self.category),
            kind: list(&self.kind),
            exclude_type: list(&self.exclude_type),
            start_time: self.start_time.clone(),
            end_time: self.end_time.clone(),
            num_results: self.num_results,
            direction: self.direction.clone(),
            show_internal: self.show_internal,
            filesystem: self.filesystem.clone(),
            local,
        }
    }
}

/// The query behind the path.
fn asked(query: &EventQuery) -> String {
    let yes = |is: bool| is.then(|| "true".to_owned());
    let parts = [
        ("severity", query.severity.clone()),
        ("category", query.category.clone()),
        ("type", query.kind.clone()),
        ("exclude_type", query.exclude_type.clone()),
        ("start_time", query.start_time.clone()),
        ("end_time", query.end_time.clone()),
        ("num_results", query.num_results.map(|count| count.to_string())),
        ("direction", query.direction.clone()),
        ("show_internal", yes(query.show_internal)),
        ("filesystem", query.filesystem.clone()),
        ("local", yes(query.local)),
    ];
    let said = parts.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escape(&value?))));
    let said: Vec<String> = said.collect();
    if said.is_empty() { String::new() } else { format!("?{}", said.join("&")) }
}

fn row(event: EventView) -> Vec<Field> {
    let tone = match event.severity.as_str() {
        "critical" | "major" => Tone::Bad,
        "minor" | "warning" => Tone::Uneasy,
        _ => Tone::Plain,
    };
    let text = match event.count {
        0 | 1 => event.text,
        count => format!("{} ({count} times more)", event.text),
    };
    vec![
        moment(event.at_ms as f64 / 1_000.0).into(),
        toned(event.severity, tone),
        event.category.into(),
        event.kind.into(),
        event.host.into(),
        text.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Events, asked};

    #[test]
    fn all_that_is_said_is_asked() {
        assert_eq!(asked(&Events::default().query(false)), "");
        let text = |text: &str| Some(text.to_owned());
        let events = Events {
            severity: text("major"),
            category: vec!["Drive".to_owned()],
            kind: vec!["Custom".to_owned(), "DriveFailed".to_owned()],
            exclude_type: vec!["HostUp".to_owned()],
            start_time: text("-1h"),
            end_time: text("2026-11-25T16:41:59+01:00"),
            num_results: Some(7),
            direction: text("asc"),
            show_internal: true,
            filesystem: text("ä b"),
        };
        let expected = "?severity=major&category=Drive&type=Custom%2CDriveFailed&exclude_type=HostUp&start_time=-1h\
            &end_time=2026-11-25T16%3A41%3A59%2B01%3A00&num_results=7&direction=asc&show_internal=true\
            &filesystem=%C3%A4%20b&local=true";
        assert_eq!(asked(&events.query(true)), expected);
    }
}
