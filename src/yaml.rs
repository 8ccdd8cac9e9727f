//! Kubernetes documents, within a budget, read as `kubectl` reads them: `0755` is 493, `yes` is true, `<<` merges.

use serde_json::Value;
use serde_saphyr::{Budget, Options};

/// Larger inputs are refused before they are parsed.
pub const MAX_INPUT: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    #[error("YAML of {0} bytes is above the limit of {MAX_INPUT}")]
    TooLarge(usize),
    #[error("YAML cannot be read: {0}")]
    Syntax(String),
    #[error("document {0} is not a mapping")]
    NotAMapping(usize),
    #[error("YAML cannot be written: {0}")]
    Write(String),
}

/// The documents of a stream, empty ones left out. A `List` is unfolded into its items.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    if text.len() > MAX_INPUT {
        return Err(YamlError::TooLarge(text.len()));
    }
    let read: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())
        .map_err(|e| YamlError::Syntax(first_line(&e.to_string())))?;
    let mut documents = Vec::with_capacity(read.len());
    for (index, value) in read.into_iter().enumerate() {
        match value {
            Value::Null => {}
            Value::Object(mut map) => {
                let is_list = map.get("kind").and_then(Value::as_str) == Some("List");
                match map.remove("items") {
                    Some(Value::Array(items)) if is_list => documents.extend(items),
                    Some(items) => {
                        map.insert("items".to_owned(), items);
                        documents.push(Value::Object(map));
                    }
                    None => documents.push(Value::Object(map)),
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(YamlError::NotAMapping(index + 1));
            }
        }
    }
    Ok(documents)
}

/// One document, without a leading `---`.
pub fn print(value: &Value) -> Result<String, YamlError> {
    serde_saphyr::to_string(value).map_err(|e| YamlError::Write(e.to_string()))
}

/// Many documents, each after a `---` line.
pub fn print_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Result<String, YamlError> {
    let mut text = String::new();
    for value in values {
        text.push_str("---\n");
        text.push_str(&print(value)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// The default budget (250,000 nodes for the whole input) refuses real install manifests.
fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_nodes = 4_000_000;
    budget.max_events = 12_000_000;
    budget.max_depth = 200;
    budget.max_total_scalar_bytes = MAX_INPUT;
    budget.max_total_comment_bytes = MAX_INPUT;
    budget.max_documents = 4096;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

fn first_line(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        let text = "mode: 0755\nyes: no\non: 'yes'\nplain: 1e3x\nempty:\n";
        let text = text.replace("yes: no", "flag: yes");
        assert_eq!(
            documents(&text).unwrap(),
            [json!({"mode": 493, "flag": true, "on": "yes", "plain": "1e3x", "empty": null})]
        );
    }

    #[test]
    fn merge_keys_are_merged() {
        let text = "a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}})]
        );
    }

    #[test]
    fn empty_documents_vanish_and_lists_unfold() {
        let text = "---\n---\n# nothing\n---\na: 1\n---\nkind: List\nitems: [{b: 2}, {c: 3}]\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": 1}), json!({"b": 2}), json!({"c": 3})]
        );
    }

    #[test]
    fn a_document_that_is_no_mapping_is_refused() {
        assert!(matches!(
            documents("a: 1\n---\n- 1\n"),
            Err(YamlError::NotAMapping(2))
        ));
        assert!(matches!(documents("a: [1\n"), Err(YamlError::Syntax(_))));
    }

    #[test]
    fn big_documents_are_read() {
        let mut text = String::from("spec:\n");
        for n in 0..60_000 {
            writeln!(
                text,
                "  key{n}: {{description: 'some words of a schema', type: object}}"
            )
            .unwrap();
        }
        assert!(text.len() > 3 << 20);
        let read = documents(&text).unwrap();
        assert_eq!(read[0]["spec"].as_object().unwrap().len(), 60_000);
    }

    #[test]
    fn what_is_printed_reads_back_the_same() {
        let value = json!({
            "s": ["yes", "0755", "null", "1.0", "a: b", "# c", "", " x ", "multi\nline\n", "~", "2020-01-01"],
            "n": [1, -2, 1.5, true, null], "m": {"0x1f": {}, "e": []},
        });
        let text = print_all([&value, &value]).unwrap();
        assert_eq!(documents(&text).unwrap(), [value.clone(), value]);
    }
}
