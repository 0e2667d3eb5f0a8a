//! Figures for people (a table) and for programs (JSON).

use serde_json::{Value, json};
use std::fmt::Write;

/// What the CPU time of a figure is divided by.
#[derive(Clone, Copy, PartialEq)]
pub enum Per {
    /// Microseconds per operation.
    Operation,
    /// Seconds per GiB.
    Gib,
}

/// One workload on one target.
#[derive(Clone, Copy)]
pub struct Figure {
    /// Operations per second, or MiB per second.
    pub rate: f64,
    /// CPU microseconds per operation, or CPU seconds per GiB.
    pub cpu: f64,
}

/// One workload on every target, in the order of the targets.
pub struct Row {
    /// What was done.
    pub workload: String,
    /// Which units the figures have.
    pub per: Per,
    /// One for each target.
    pub figures: Vec<Figure>,
}

impl Per {
    fn rate_unit(self) -> &'static str {
        if self == Per::Gib { "MiB/s" } else { "op/s" }
    }

    fn cpu_unit(self) -> &'static str {
        if self == Per::Gib { "CPU s/GiB" } else { "CPU us/op" }
    }
}

/// The head of the table.
pub fn head(targets: &[String]) -> String {
    let mut line = format!("{:<34}", "workload");
    for target in targets {
        let _ = write!(line, " {target:>10} {:<5} {:>19}", "", "CPU");
    }
    line + "     ratio"
}

/// One line of the table; the ratio is the last target's rate over the first's.
pub fn line(row: &Row) -> String {
    let mut line = format!("{:<34}", row.workload);
    for figure in &row.figures {
        let (rate, cpu) = (figure.rate, figure.cpu);
        let _ = write!(line, " {rate:>10.0} {:<5} {cpu:>9.2} {:<9}", row.per.rate_unit(), row.per.cpu_unit());
    }
    if let [first, .., last] = row.figures.as_slice() {
        let _ = write!(line, " {:>8.2}x", last.rate / first.rate);
    }
    line
}

/// The rows as JSON.
pub fn json(targets: &[String], rows: &[Row]) -> Value {
    let of_row = |row: &Row| {
        let figure =
            |(name, figure): (&String, &Figure)| (name.clone(), json!({"rate": figure.rate, "cpu": figure.cpu}));
        let figures: serde_json::Map<String, Value> = targets.iter().zip(&row.figures).map(figure).collect();
        json!({
            "workload": row.workload,
            "rate_unit": row.per.rate_unit(),
            "cpu_unit": row.per.cpu_unit(),
            "targets": figures,
        })
    };
    Value::Array(rows.iter().map(of_row).collect())
}
