//! The medians for programs (JSON), for people (a table) and for the eye (a picture).

use super::data::{SIZES_KIB, SPREAD_FROM_KIB, size_id};
use super::goal::SPREAD_MAX;
use super::row::{Per, Row, Sample};
use super::{Suite, picture, readme};
use crate::Outcome;
use crate::arguments::Arguments;
use crate::target::Target;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;

/// More than this, and the machine was not quiet.
const IDLE_CORES_MAX: f64 = 0.2;

/// How far apart the transfer sizes from 64 KiB on lie on one target.
struct Spread {
    rw: &'static str,
    /// (largest - smallest) / largest.
    value: f64,
}

/// Writes `DATE-COMMIT.json`, `.md` and `.svg` below `--out`, and prints the table. A whole run also goes into
/// `--readme FILE`.
pub fn write(suite: &Suite, arguments: &Arguments, rounds: u64, failures: &[String], whole: bool) -> Outcome<()> {
    let word = |name: &str| arguments.text(name).unwrap_or("unknown").to_owned();
    let (commit, date) = (word("commit"), word("date"));
    let machine = machine();
    let last = suite.targets.len() - 1;
    let spreads: Vec<Spread> = ["write", "read"].into_iter().filter_map(|rw| spread(suite, rw, last)).collect();
    let spreads_json = spreads.iter().map(|spread| json!({"rw": spread.rw, "spread": spread.value, "max": SPREAD_MAX}));
    let value = json!({
        "format": 2,
        "commit": commit,
        "date": date,
        "machine": machine,
        "quick": arguments.flag("quick"),
        "rounds": rounds,
        "idle_cores": suite.idle_cores,
        "quiet": is_quiet(suite),
        "targets": suite.names(),
        "rows": suite.rows.iter().map(|row| of_row(suite, row)).collect::<Vec<_>>(),
        "spreads": spreads_json.collect::<Vec<_>>(),
        "failures": failures,
    });
    let mut head =
        format!("Commit {commit}, {date}; {machine}; medians of {rounds}; idle load {:.2} cores.", suite.idle_cores);
    if arguments.flag("quick") {
        head += " Quick: the figures mean little.";
    }
    if !is_quiet(suite) {
        head += " Other programs ran: the figures mean little, and CPU is that of program and server alone.";
    }
    head.push('\n');
    let table = format!("{head}\n{}", table(suite, &spreads, failures));
    println!("\n{table}");
    let out = Suite::out(arguments)?;
    let name = format!("{date}-{commit}{}", arguments.text("suffix").unwrap_or_default());
    let drawn = picture::draw(&suite.names(), &suite.rows, &head);
    for (ending, text) in [("json", format!("{value:#}\n")), ("md", table.clone()), ("svg", drawn)] {
        let path = out.join(format!("{name}.{ending}"));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("written: {}", path.display());
    }
    match arguments.text("readme") {
        Some(path) if whole => readme::show(path, &name, &table),
        _ => Ok(()),
    }
}

/// Was nothing else running when it began?
fn is_quiet(suite: &Suite) -> bool {
    suite.idle_cores <= IDLE_CORES_MAX
}

/// The CPU that is shown and held against the goal: of the whole machine, if it had nothing else to do.
fn shown(suite: &Suite, row: &Row, target: usize) -> Option<f64> {
    row.cpu(target, if is_quiet(suite) { |sample| sample.cpu } else { Sample::cpu_own })
}

/// `2 CPUs (name of the processor), Linux 6.1`.
fn machine() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cpus} CPUs ({}), Linux {}", model.trim_start_matches([' ', '\t', ':']), kernel.trim())
}

fn of_row(suite: &Suite, row: &Row) -> Value {
    let mut figures = Map::new();
    for (target, name) in suite.names().into_iter().enumerate() {
        let value = json!({
            "rate": row.rate(target),
            "rates": row.rates(target),
            "ratio": row.ratio(target),
            "cpu": row.cpu(target, |sample| sample.cpu),
            "cpu_own": row.cpu(target, Sample::cpu_own),
            "cpu_by_process": row.cpu_by_process(target),
            "cpu_after": row.cpu(target, |sample| sample.cpu_after),
            "error": row.error(target),
        });
        figures.insert(name.to_owned(), value);
    }
    let (speed_met, cpu_met) = met(suite, row);
    json!({
        "id": row.id,
        "workload": row.title,
        "rate_unit": row.per.rate_unit(),
        "cpu_unit": row.per.cpu_unit(),
        "goal": {"ratio_min": row.goal.ratio_min, "rate_min": row.goal.rate_min, "cpu_max": row.goal.cpu_max},
        "speed_met": speed_met,
        "cpu_met": cpu_met,
        "targets": figures,
    })
}

/// Does the last target reach the speed and stay within the CPU? `None`: not asked, or not to be told.
fn met(suite: &Suite, row: &Row) -> (Option<bool>, Option<bool>) {
    let last = suite.targets.len() - 1;
    let first = if last > 0 { row.rate(0) } else { None };
    let asked = row.goal.ratio_min.is_some() || row.goal.rate_min.is_some();
    let speed = match row.rate(last) {
        Some(rate) => row.goal.speed_met(rate, first),
        None => asked.then_some(false),
    };
    (speed, row.goal.cpu_met(shown(suite, row, last)))
}

fn table(suite: &Suite, spreads: &[Spread], failures: &[String]) -> String {
    let mut text = "| workload |".to_owned();
    for (target, name) in suite.names().iter().enumerate() {
        let _ = write!(text, " {name} | CPU |{}", if target > 0 { " ratio |" } else { "" });
    }
    let of_many = suite.targets.last().is_some_and(Target::is_of_many);
    text += if of_many { " by process |" } else { " CPU after |" };
    text += " goal | |\n|---|";
    for target in 0..suite.targets.len() {
        text += if target > 0 { "--:|--:|--:|" } else { "--:|--:|" };
    }
    text += if of_many { "---|---|---|\n" } else { "--:|---|---|\n" };
    for row in &suite.rows {
        text += &line(suite, row);
    }
    text.push('\n');
    for spread in spreads {
        let mark = if spread.value <= SPREAD_MAX { "" } else { " **missed**" };
        let (rw, percent) = (spread.rw, spread.value * 100.0);
        let _ = writeln!(text, "- transfer sizes 64 KiB to 16 MiB, {rw}: {percent:.0} % apart (goal ≤ 20 %){mark}");
    }
    for failure in failures {
        let _ = writeln!(text, "- did not come through: {failure}");
    }
    text
}

fn line(suite: &Suite, row: &Row) -> String {
    let last = suite.targets.len() - 1;
    let mut text = format!("| {} |", row.title);
    for target in 0..suite.targets.len() {
        match row.rate(target) {
            Some(rate) => {
                let _ = write!(text, " {} {} |", short(rate), row.per.rate_unit());
            }
            None => text += " failed |",
        }
        text += &cpu(row, shown(suite, row, target));
        if target > 0 {
            text += &row.ratio(target).map_or_else(|| " – |".to_owned(), |ratio| format!(" {ratio:.2}x |"));
        }
    }
    if suite.targets[last].is_of_many() {
        let digits = digits(row);
        let parts = row.cpu_by_process(last).into_iter().map(|(name, cpu)| format!("{name} {cpu:.digits$}"));
        let _ = write!(text, " {} |", parts.collect::<Vec<_>>().join(", "));
    } else {
        text += &cpu(row, row.cpu(last, |sample| sample.cpu_after).filter(|_| is_quiet(suite)));
    }
    let mark = match met(suite, row) {
        (Some(false), Some(false)) => "**missed, CPU too**",
        (Some(false), _) => "**missed**",
        (_, Some(false)) => "**CPU missed**",
        (Some(true), _) | (_, Some(true)) => "met",
        (None, None) => "",
    };
    let _ = writeln!(text, " {} | {mark} |", row.goal.words(row.per.rate_unit()));
    text
}

fn digits(row: &Row) -> usize {
    if row.per == Per::Gib { 2 } else { 1 }
}

fn cpu(row: &Row, cpu: Option<f64>) -> String {
    let digits = digits(row);
    cpu.map_or_else(|| " – |".to_owned(), |cpu| format!(" {cpu:.digits$} {} |", row.per.cpu_unit()))
}

/// Three digits are enough for people.
pub fn short(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.2}")
    } else if rate < 100.0 {
        format!("{rate:.1}")
    } else {
        format!("{rate:.0}")
    }
}

fn spread(suite: &Suite, rw: &'static str, target: usize) -> Option<Spread> {
    let of_size = |kib: u64| suite.rows.iter().find(|row| row.id == size_id(rw, kib))?.rate(target);
    let rates: Option<Vec<f64>> = SIZES_KIB.into_iter().filter(|kib| *kib >= SPREAD_FROM_KIB).map(of_size).collect();
    let rates = rates?;
    let (low, high) = rates.iter().fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(*rate), high.max(*rate)));
    Some(Spread { rw, value: (high - low) / high })
}
