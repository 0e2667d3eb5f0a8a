//! Moments as people write them.

use braid_base::{Error, ErrorKind, Result};

/// Days before 1970 of a calendar that begins with 0000-03-01.
const DAYS_TO_1970: i64 = 719_468;

/// Milliseconds since 1970 of `text`: RFC 3339 (a blank may stand for the `T`, without a zone it is UTC, and a day alone
/// means its beginning), or so long before `now_ms` (`90s`, `5m`, `-1h`, `1d5h`, `1w`), or `now`.
///
/// Errors: `Invalid`: it is none of these.
pub(super) fn parse(text: &str, now_ms: u64) -> Result<u64> {
    let text = text.trim();
    if text == "now" {
        return Ok(now_ms);
    }
    let found = ago_ms(text.strip_prefix('-').unwrap_or(text)).map(|ago| now_ms.saturating_sub(ago));
    found.or_else(|| at_ms(text)).ok_or_else(|| {
        let words =
            format!("a moment such as 2026-11-25T16:41:59Z, 2026-11-25, 1h, 1d5h or now expected, found {text:?}");
        Error::new(ErrorKind::Invalid, words)
    })
}

/// A duration, milliseconds.
fn ago_ms(text: &str) -> Option<u64> {
    let (mut total_s, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit_s = match after.as_bytes().first()? {
            b's' => 1,
            b'm' => 60,
            b'h' => 3_600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        total_s = number.parse::<u64>().ok()?.checked_mul(unit_s)?.checked_add(total_s)?;
        rest = &after[1..];
    }
    if text.is_empty() { None } else { total_s.checked_mul(1_000) }
}

/// A date, with or without a time of day.
fn at_ms(text: &str) -> Option<u64> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, "00:00:00Z"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (time, ahead_s) = zone(time)?;
    let (time, millis) = match time.split_once('.') {
        Some((time, fraction)) => (time, millis(fraction)?),
        None => (time, 0),
    };
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_month = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    // The second that is put in now and then counts as the one after it.
    if !in_month || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let at_s = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - ahead_s;
    u64::try_from(at_s.checked_mul(1_000)?.checked_add(millis)?).ok()
}

/// Numbers of so many digits each, with `between` between them.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let (mut found, mut parts) = ([0; N], text.split(between));
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// A time of day without its zone, and how far that is ahead of UTC, seconds.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let [hours, minutes] = numbers(&time[at + 1..], ':', [2, 2])?;
    let ahead_s = hours * 3_600 + minutes * 60;
    (hours < 24 && minutes < 60).then_some((&time[..at], if time[at..].starts_with('-') { -ahead_s } else { ahead_s }))
}

/// The fraction of a second, milliseconds.
fn millis(digits: &str) -> Option<i64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<3}")[..3].parse().ok()
}

fn days_of(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin with March here, so that a leap day is the last of its year; 400 of them have 146,097 days.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - DAYS_TO_1970
}

#[cfg(test)]
mod tests {
    use super::parse;

    const NOW_MS: u64 = 1_700_000_000_000;

    #[test]
    fn moments() {
        for (text, at_ms) in [
            ("now", NOW_MS),
            ("1h", NOW_MS - 3_600_000),
            ("-1h", NOW_MS - 3_600_000),
            ("-1d5h", NOW_MS - 104_400_000),
            ("90s", NOW_MS - 90_000),
            ("5000w", 0),
            ("1970-01-01", 0),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2000-03-01 00:00:00", 951_868_800_000),
            ("2023-11-14T22:13:20Z", NOW_MS),
            ("2023-11-14T22:13:20.5z", NOW_MS + 500),
            ("2023-11-14T22:13:20.0019Z", NOW_MS + 1),
            ("2023-11-14t23:13:20+01:00", NOW_MS),
            ("2023-11-14 16:43:20-05:30", NOW_MS),
            ("2100-03-01", 4_107_542_400_000),
            ("2026-12-31T23:59:60Z", 1_798_761_600_000),
        ] {
            assert_eq!(parse(text, NOW_MS).ok(), Some(at_ms), "{text}");
        }
        for text in [
            "",
            "-",
            "1",
            "h",
            "1y",
            "1h5",
            "yesterday",
            "2023-11",
            "2023-13-01",
            "2023-02-29",
            "2023-11-31",
            "23-11-14",
            "2023-11-14T24:00:00Z",
            "2023-11-14T10:00",
            "2023-11-14T10:00:00.Z",
            "2023-11-14T10:00:00+1",
            "2023-11-14T10:00:00+25:00",
            "1969-12-31",
            "2023-11-14-01",
            "99999999999999w",
            "1ü",
            "2023-11-14T1é:00:00Z",
        ] {
            assert!(parse(text, NOW_MS).is_err(), "{text}");
        }
    }
}
