//! The layouts of `docs/formats.md`, made into bytes: the page itself is what the encoders are tested against, so
//! the page and the code cannot drift apart. Crates whose encoders are private take this file in by its path.

/// What stands in a field.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number; negative ones in two's complement.
    N(u64),
    /// Bytes.
    B(Vec<u8>),
}

/// A field that gets `value`.
pub fn n(name: &str, value: impl Into<u64>) -> (String, Value) {
    (name.to_owned(), Value::N(value.into()))
}

/// A field that gets `bytes`.
pub fn b(name: &str, bytes: &[u8]) -> (String, Value) {
    (name.to_owned(), Value::B(bytes.to_vec()))
}

/// The bytes of the layout `name` with `values` in the order of the page. Panics if a name, an order or a number
/// of fields differs from the page.
pub fn bytes(name: &str, values: &[(String, Value)]) -> Vec<u8> {
    let text = layout(name);
    let mut filler = Filler { name, values, at: 0, out: Vec::new() };
    filler.fields(&text);
    assert_eq!(filler.at, values.len(), "layout {name}: the page has fewer fields, left: {:?}", &values[filler.at..]);
    filler.out
}

/// The text of the layout `name`: its line and the indented ones below it.
fn layout(name: &str) -> String {
    let page = include_str!("../../../../docs/formats.md");
    let mut found: Option<String> = None;
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```layout";
            continue;
        }
        let (head, rest) = line.split_once(": ").unwrap_or((line, ""));
        match &mut found {
            _ if !inside => {}
            Some(text) if line.starts_with(' ') => text.push_str(line),
            Some(_) => break,
            None if head == name => found = Some(rest.to_owned()),
            None => {}
        }
    }
    found.unwrap_or_else(|| panic!("docs/formats.md has no layout {name}"))
}

struct Filler<'a> {
    name: &'a str,
    values: &'a [(String, Value)],
    at: usize,
    out: Vec<u8>,
}

impl Filler<'_> {
    fn fields(&mut self, text: &str) {
        for field in split(text) {
            if let Some((_, group)) = field.split_once(" x (") {
                let group = group.strip_suffix(')').expect("a group ends with its parenthesis");
                let first = split(group)[0].split(' ').next().unwrap_or_default().to_owned();
                while self.values.get(self.at).is_some_and(|(name, _)| *name == first) {
                    self.fields(group);
                }
            } else if let Some(end) = field.strip_prefix("zeros to ") {
                let end: usize = end.parse().expect("zeros to a number");
                assert!(self.out.len() <= end, "layout {}: {} bytes before zeros to {end}", self.name, self.out.len());
                self.out.resize(end, 0);
            } else {
                self.field(&field);
            }
        }
    }

    fn field(&mut self, field: &str) {
        let (field, fixed) = match field.split_once(" = ") {
            Some((field, value)) => (field, Some(constant(value))),
            None => (field, None),
        };
        let (name, kind) = field.split_once(' ').unwrap_or_else(|| panic!("layout {}: {field}", self.name));
        let value = fixed.unwrap_or_else(|| self.next(name));
        match (value, kind) {
            (Value::N(number), "u8" | "u16" | "u32" | "u64" | "i64") => {
                let bits: usize = kind[1..].parse().expect("a width");
                assert!(bits == 64 || number >> bits == 0, "layout {}: {name} = {number} in {kind}", self.name);
                self.out.extend_from_slice(&number.to_le_bytes()[..bits / 8]);
            }
            (Value::N(number), _) if kind.starts_with("be") => {
                let width: usize = kind[2..].parse().expect("a width");
                self.out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
            }
            (Value::B(bytes), "bytes") => {
                self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                self.out.extend_from_slice(&bytes);
            }
            (Value::B(bytes), "raw") => self.out.extend_from_slice(&bytes),
            (Value::B(bytes), _) if kind == format!("[{}]", bytes.len()) => self.out.extend_from_slice(&bytes),
            (value, _) => panic!("layout {}: {name} is {kind}, found {value:?}", self.name),
        }
    }

    fn next(&mut self, name: &str) -> Value {
        let next = self.values.get(self.at);
        let Some((_, value)) = next.filter(|(found, _)| found == name) else {
            panic!("layout {}: the page has {name}, the test {:?}", self.name, next.map(|(found, _)| found))
        };
        self.at += 1;
        value.clone()
    }
}

/// The fields of `text`: parts between bars outside parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == '|' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("there is one").push(c);
        }
    }
    parts.iter().map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|p| !p.is_empty()).collect()
}

fn constant(text: &str) -> Value {
    if let Some(text) = text.strip_prefix('\'') {
        return Value::B(text.trim_end_matches('\'').as_bytes().to_vec());
    }
    let number = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    Value::N(number.unwrap_or_else(|_| panic!("a constant: {text}")))
}
