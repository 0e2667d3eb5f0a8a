//! The ratios as a picture: a bar per workload, the goal a tick across it. Plain SVG that any browser shows;
//! colours follow the reader's light or dark setting, and no meaning hangs on colour alone.

use super::report::short;
use super::row::Row;
use std::fmt::Write;

/// Places in the picture, in its own units (pixels at full size).
const WIDTH: u32 = 1000;
const BARS_LEFT: f64 = 360.0;
const BARS_WIDTH: f64 = 390.0;
const SHARES_RIGHT: f64 = 808.0;
const WORDS_LEFT: f64 = 820.0;
const HEAD: f64 = 98.0;
const LINE: f64 = 24.0;
const BAR: f64 = 12.0;
/// What does not fit is cut off, with its number beside it.
const RATIO_SHOWN_MAX: f64 = 1.25;

const STYLE: &str = "\
  .paper { fill: #ffffff } text { fill: #1f2328; font: 13px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 16px } .small { fill: #59636e; font-size: 11px }
  .right { text-anchor: end } .middle { text-anchor: middle } .bad { font-weight: 600 }
  .grid { stroke: #d1d9e0 } .one { stroke: #59636e } .goal { stroke: #1f2328; stroke-width: 2.5 }
  .met { fill: #2f7d4f } .missed { fill: #d9622b } .free { fill: #5a7fb0 } .before { fill: #a3adb8 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } text { fill: #e6edf3 } .small { fill: #9198a1 }
    .grid { stroke: #30363d } .one { stroke: #9198a1 } .goal { stroke: #ffffff }
    .met { fill: #3fa36b } .missed { fill: #f0813f } .free { fill: #6f9bd8 } .before { fill: #5b6570 }
  }
";

/// The last target against the first; one between them, the last commit, as a thin bar below.
pub fn draw(targets: &[&str], rows: &[Row], head: &str) -> String {
    let last = targets.len() - 1;
    let shown: Vec<&Row> = rows.iter().filter(|row| last == 0 || row.rate(0).is_some()).collect();
    let bottom = HEAD + LINE * shown.len() as f64;
    let height = bottom + 34.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n"
    );
    let title = if last > 0 {
        format!("{} as a share of {}, same disk, same run", targets[last], targets[0])
    } else {
        format!("{}: nothing to compare with", targets[last])
    };
    let _ = writeln!(svg, "<text class=\"title\" x=\"16\" y=\"28\">{}</text>", escape(&title));
    // What was measured on one line, what speaks against it on the next.
    let (what, but) = head.trim().split_once(". ").unwrap_or((head.trim(), ""));
    for (y, line) in [(47, what), (62, but)] {
        let _ = writeln!(svg, "<text class=\"small\" x=\"16\" y=\"{y}\">{}</text>", escape(line));
    }
    legend(&mut svg, targets);
    axis(&mut svg, bottom);
    for (at, row) in shown.into_iter().enumerate() {
        bar(&mut svg, row, last, HEAD + LINE * at as f64);
    }
    svg + "</svg>\n"
}

fn legend(svg: &mut String, targets: &[&str]) {
    let mut words = vec![("met", "goal reached"), ("missed", "goal missed"), ("free", "no goal for speed")];
    if let [_, between, _] = targets {
        words.push(("before", between));
    }
    for (at, (class, word)) in words.into_iter().enumerate() {
        let x = 16.0 + 130.0 * at as f64;
        let _ = writeln!(svg, "<rect class=\"{class}\" x=\"{x}\" y=\"71\" width=\"10\" height=\"10\"/>");
        let _ = writeln!(svg, "<text class=\"small\" x=\"{}\" y=\"80\">{}</text>", x + 15.0, escape(word));
    }
    let _ = writeln!(svg, "<line class=\"goal\" x1=\"546\" x2=\"546\" y1=\"70\" y2=\"82\"/>");
    let _ = writeln!(svg, "<text class=\"small\" x=\"553\" y=\"80\">goal</text>");
}

fn axis(svg: &mut String, bottom: f64) {
    for quarter in 0..=5_u32 {
        let ratio = f64::from(quarter) / 4.0;
        let (x, class) = (place(ratio), if quarter == 4 { "one" } else { "grid" });
        let _ = writeln!(svg, "<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"{HEAD}\" y2=\"{bottom}\"/>");
        let _ = writeln!(svg, "<text class=\"small middle\" x=\"{x}\" y=\"{}\">{ratio}x</text>", bottom + 16.0);
    }
}

fn bar(svg: &mut String, row: &Row, last: usize, top: f64) {
    let (base, text_y) = (top + (LINE - BAR) / 2.0, top + LINE / 2.0 + 4.5);
    let first = if last > 0 { row.rate(0) } else { None };
    let rate = row.rate(last);
    let met = rate.map_or(Some(false), |rate| row.goal.speed_met(rate, first));
    let class = match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "free",
    };
    let (name_x, title) = (BARS_LEFT - 12.0, escape(&row.title));
    let _ = writeln!(svg, "<text class=\"right\" x=\"{name_x}\" y=\"{text_y}\">{title}</text>");
    let ratio = if last > 0 { row.ratio(last) } else { None };
    if let Some(ratio) = ratio {
        rectangle(svg, class, ratio, base, BAR);
    }
    if let (Some(before), true) = (row.ratio(1), last == 2) {
        rectangle(svg, "before", before, base + BAR + 1.0, 4.0);
    }
    if let Some(goal) = row.goal.ratio_wanted(first).filter(|goal| *goal <= RATIO_SHOWN_MAX) {
        let (x, top, low) = (place(goal), base - 3.0, base + BAR + 3.0);
        let _ = writeln!(svg, "<line class=\"goal\" x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{low}\"/>");
    }
    let share = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}x"));
    let speed = rate.map_or_else(|| "failed".to_owned(), |rate| format!("{} {}", short(rate), row.per.rate_unit()));
    let (mark, weight) = if class == "missed" { (" ✗ missed", "bad") } else { ("", "") };
    let _ = writeln!(svg, "<text class=\"right {weight}\" x=\"{SHARES_RIGHT}\" y=\"{text_y}\">{share}</text>");
    let _ = writeln!(svg, "<text class=\"{weight}\" x=\"{WORDS_LEFT}\" y=\"{text_y}\">{speed}{mark}</text>");
}

fn rectangle(svg: &mut String, class: &str, ratio: f64, y: f64, height: f64) {
    let width = (place(ratio) - BARS_LEFT).max(1.0);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{BARS_LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" rx=\"1\"/>"
    );
}

/// Where a ratio lies from left to right.
fn place(ratio: f64) -> f64 {
    BARS_LEFT + BARS_WIDTH * ratio.min(RATIO_SHOWN_MAX) / RATIO_SHOWN_MAX
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::super::row::{Per, Row, Sample, Task};
    use super::{BARS_LEFT, BARS_WIDTH, draw, place};
    use crate::target::Usage;

    fn row(rates: [f64; 2], goal: Goal) -> Row {
        let task = Task { id: "a", title: "a < b", per: Per::Operation, goal, cold: false, settles: false };
        let mut row = Row::new(&task, 2);
        for (samples, rate) in row.samples.iter_mut().zip(rates) {
            samples.push(Ok(Sample { rate, cpu: None, cpu_by_process: Usage::new(), cpu_after: None }));
        }
        row
    }

    #[test]
    fn bars_end_where_the_ratio_is_and_names_are_escaped() {
        assert_eq!((place(0.0), place(9.0)), (BARS_LEFT, BARS_LEFT + BARS_WIDTH));
        let svg = draw(&["ext4", "braid"], &[row([100.0, 50.0], Goal::ratio(0.55))], "head");
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
        assert!(svg.contains("class=\"missed\" x=\"360\""), "{svg}");
        assert!(svg.contains("width=\"156.0\""), "half of 1.25 of 390: {svg}");
        assert!(svg.contains("✗ missed"));
        let svg = draw(&["ext4", "braid"], &[row([100.0, 56.0], Goal::ratio(0.55))], "head");
        assert!(!svg.contains("✗ missed"));
    }
}
