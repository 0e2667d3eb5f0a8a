//! Sizes and durations as people write and read them.

use std::time::Duration;

use braid_cluster::facts::Protection;

/// Reads a size: `4GiB`, `4G`, `4g` (powers of 1024), `500MB` (powers of 1000), `1.5TiB`, or bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("a size such as 4GiB, 4G, 500MB or 4096 expected, found {text:?}");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let (letter, rest) = unit.split_at_checked(unit.len().min(1)).ok_or_else(wrong)?;
    let power = match letter {
        "" | "b" if rest.is_empty() => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return Err(wrong()),
    };
    let base: u128 = match rest {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return Err(wrong());
    }
    let (unit_bytes, tenths) = (base.pow(power), 10_u128.pow(fraction.len() as u32));
    let whole: u128 = whole.parse::<u64>().map_err(|_| wrong())?.into();
    let fraction: u128 = fraction.parse::<u64>().map_err(|_| wrong())?.into();
    u64::try_from(whole * unit_bytes + fraction * unit_bytes / tenths)
        .map_err(|_| format!("{text:?} is more than 16 EiB"))
}

/// A size for people: `4.00 GiB`, `512 B`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (63 - bytes.leading_zeros()) / 10;
    let value = bytes as f64 / 2_f64.powi(10 * power as i32);
    format!("{value:.2} {}", UNITS[power as usize - 1])
}

/// Reads a duration in seconds: `30s`, `15m`, `2h`, `1d5h`, `1w`, or `infinite`.
pub fn parse_duration_s(text: &str) -> Result<u64, String> {
    let wrong = || format!("a duration such as 30s, 15m, 2h, 1d5h, 1w or infinite expected, found {text:?}");
    if matches!(text, "infinite" | "unlimited") {
        return Ok(u64::MAX);
    }
    let (mut total, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let split = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..split].parse().map_err(|_| wrong())?;
        let unit_s = match &rest[split..split + rest[split..].chars().next().map_or(0, char::len_utf8)] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return Err(wrong()),
        };
        total = number.checked_mul(unit_s).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = &rest[split + 1..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// A duration for people: `1d 5h`, `15m`, `0s`; the two largest units only.
pub fn duration(seconds: u64) -> String {
    if seconds == u64::MAX {
        return "infinite".to_owned();
    }
    let span = Duration::from_secs(seconds).as_secs();
    let parts = [(span / 86_400, "d"), (span / 3600 % 24, "h"), (span / 60 % 60, "m"), (span % 60, "s")];
    let mut shown: Vec<String> = parts
        .iter()
        .skip_while(|part| part.0 == 0)
        .take(2)
        .filter(|part| part.0 > 0)
        .map(|(n, u)| format!("{n}{u}"))
        .collect();
    if shown.is_empty() {
        shown.push("0s".to_owned());
    }
    shown.join(" ")
}

/// A moment for people, in UTC: `2026-11-25 16:41:59`; `at_s`: seconds since 1970.
pub fn moment(at_s: f64) -> String {
    let whole_s = at_s as u64;
    let (of_day_s, days) = (whole_s % 86_400, whole_s / 86_400);
    // Counted from 0000-03-01, so that a leap day is the last one of its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (year, hour, minute, second) = (era * 400 + year + next, of_day_s / 3600, of_day_s / 60 % 60, of_day_s % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Reads a protection such as `4+2`.
pub fn parse_protection(text: &str) -> Result<Protection, String> {
    let parts = text.split_once('+').and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)));
    parts
        .map(|(data, parity)| Protection { data, parity })
        .ok_or_else(|| format!("data and parity shards such as 4+2 expected, found {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::{duration, moment, parse_duration_s, parse_protection, parse_size, size};

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("12B", 12),
            ("4GiB", 4 << 30),
            ("4G", 4 << 30),
            ("4g", 4 << 30),
            ("4 GiB", 4 << 30),
            ("500MB", 500_000_000),
            ("1.5TiB", 3 << 39),
            ("0.5k", 512),
            ("15E", 15 << 60),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "x", "4X", "4GG", "-1", "1e9", ".5G", "1.", "1..5G", "G", "16E", "99999999999999999999", "4 Gi", "4Üb"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (4 << 30, "4.00 GiB"), (u64::MAX, "16.00 EiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in
            [("3s", 3), ("15m", 900), ("2h", 7200), ("1d5h", 104_400), ("1w", 604_800), ("infinite", u64::MAX)]
        {
            assert_eq!(parse_duration_s(text), Ok(seconds), "{text}");
        }
        for text in ["", "5", "s", "1y", "1d5", "-1s", "1ü", "99999999999999w"] {
            assert!(parse_duration_s(text).is_err(), "{text}");
        }
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (900, "15m"), (104_400, "1d 5h"), (86_405, "1d"), (u64::MAX, "infinite")]
        {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn moments() {
        for (at_s, text) in [
            (0.0, "1970-01-01 00:00:00"),
            (951_782_399.9, "2000-02-28 23:59:59"),
            (951_782_400.0, "2000-02-29 00:00:00"),
            (951_868_800.0, "2000-03-01 00:00:00"),
            (1_700_000_000.5, "2023-11-14 22:13:20"),
            (1_798_761_599.0, "2026-12-31 23:59:59"),
            (4_107_542_400.0, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(moment(at_s), text);
        }
    }

    #[test]
    fn protections() {
        assert_eq!(parse_protection("4+2").map(|p| (p.data, p.parity)), Ok((4, 2)));
        for text in ["", "4", "4+", "+2", "4-2", "4+2+1", "300+2"] {
            assert!(parse_protection(text).is_err(), "{text}");
        }
    }
}
