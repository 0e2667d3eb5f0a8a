//! One field of a JSON text, for shell scripts on machines without a JSON tool.

use crate::Outcome;
use crate::arguments::Arguments;
use serde_json::Value;
use std::io::Read;

/// Prints the field that the path names (`a.b.0.c`; `#` counts a list, `*` is every element,
/// one a line). Strings come without quotes.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let path = arguments.bare.first().map_or("", String::as_str);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    println!("{}", show(&value, path)?);
    Ok(())
}

fn show(value: &Value, path: &str) -> Outcome<String> {
    let (step, rest) = path.split_once('.').unwrap_or((path, ""));
    let list = || value.as_array().ok_or_else(|| format!("'{path}': not a list"));
    match step {
        "" => Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        "#" => Ok(list()?.len().to_string()),
        "*" => Ok(list()?.iter().map(|element| show(element, rest)).collect::<Outcome<Vec<_>>>()?.join("\n")),
        _ => {
            let next = step.parse::<usize>().map_or_else(|_| value.get(step), |at| value.get(at));
            show(next.ok_or_else(|| format!("'{path}': there is no '{step}'"))?, rest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::show;
    use serde_json::json;

    #[test]
    fn fields_lists_and_what_is_absent() {
        let value = json!({"state": "ok", "drives": [{"id": 7}, {"id": 8}]});
        assert_eq!(show(&value, "state"), Ok("ok".to_owned()));
        assert_eq!(show(&value, "drives.0.id"), Ok("7".to_owned()));
        assert_eq!(show(&value, "drives.#"), Ok("2".to_owned()));
        assert_eq!(show(&value, "drives.*.id"), Ok("7\n8".to_owned()));
        assert!(show(&value, "drives.2").is_err());
    }
}
