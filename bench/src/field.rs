//! One field of a JSON text, for shell scripts on machines without a JSON tool.

use crate::Outcome;
use crate::arguments::Arguments;
use serde_json::Value;
use std::io::Read;

/// Prints the field that the path names (`a.b.0.c`; `#` at the end counts a list). Strings come without quotes.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let path = arguments.bare.first().map_or("", String::as_str);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    println!("{}", show(&value, path)?);
    Ok(())
}

fn show(value: &Value, path: &str) -> Outcome<String> {
    let mut value = value;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        if step == "#" {
            return value.as_array().map(|list| list.len().to_string()).ok_or_else(|| format!("{path}: not a list"));
        }
        let next = step.parse::<usize>().map_or_else(|_| value.get(step), |at| value.get(at));
        value = next.ok_or_else(|| format!("{path}: there is no '{step}'"))?;
    }
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::show;
    use serde_json::json;

    #[test]
    fn fields_lists_and_what_is_absent() {
        let value = json!({"state": "ok", "drives": [{"id": 7}]});
        assert_eq!(show(&value, "state"), Ok("ok".to_owned()));
        assert_eq!(show(&value, "drives.0.id"), Ok("7".to_owned()));
        assert_eq!(show(&value, "drives.#"), Ok("1".to_owned()));
        assert!(show(&value, "drives.1").is_err());
    }
}
