//! One object of a bundle. Definitions of kinds are by far the largest part of an install, and what is in them is needed only
//! when they are applied: they are kept packed, and told apart by their heads.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Kind;

/// Packs a definition into a tenth, in little memory.
const LEVEL: i32 = 3;

#[derive(Debug, Clone, PartialEq)]
pub struct Document(Form);

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Plain(Value),
    /// zstd of the JSON, and its length.
    Packed {
        head: Value,
        packed: Arc<[u8]>,
        length: usize,
    },
}

impl Document {
    pub fn new(object: Value) -> Self {
        if object["kind"] != Kind::CustomResourceDefinition.as_str() {
            return Self(Form::Plain(object));
        }
        let text = object.to_string();
        let packed = zstd::bulk::compress(text.as_bytes(), LEVEL)
            .expect("compression from memory to memory has no way to fail");
        let head = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"],
        });
        Self(Form::Packed {
            head,
            packed: packed.into(),
            length: text.len(),
        })
    }

    /// With `apiVersion`, `kind` and `metadata` at least.
    pub fn head(&self) -> &Value {
        match &self.0 {
            Form::Plain(object) => object,
            Form::Packed { head, .. } => head,
        }
    }

    pub fn whole(&self) -> Cow<'_, Value> {
        match &self.0 {
            Form::Plain(object) => Cow::Borrowed(object),
            Form::Packed { packed, length, .. } => {
                let text = zstd::bulk::decompress(packed, *length)
                    .expect("what was packed here has this length");
                let object = serde_json::from_slice(&text).expect("what was packed here is JSON");
                Cow::Owned(object)
            }
        }
    }

    /// Changes what has a namespace or names one: no definition does.
    pub(super) fn move_by(&mut self, change: impl FnOnce(&mut Value)) {
        match &mut self.0 {
            Form::Plain(object) => change(object),
            Form::Packed { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W23: what the agent keeps of an engine's kinds is a tenth of their text.
    #[test]
    fn a_definition_is_kept_packed_and_comes_back_as_it_was() {
        let field = |n: usize| {
            (
                format!("field{n}"),
                json!({"type": "string", "description": "of a kind"}),
            )
        };
        let fields: serde_json::Map<String, Value> = (0..500).map(field).collect();
        let kind = Kind::CustomResourceDefinition;
        let definition = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": "things.example.org"},
            "spec": {"versions": [{"name": "v1", "schema": {"properties": fields}}]},
        });
        let kept = Document::new(definition.clone());
        let head = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": "things.example.org"},
        });
        assert_eq!((kept.head(), &*kept.whole()), (&head, &definition));
        let Form::Packed { packed, length, .. } = &kept.0 else {
            unreachable!("it is a definition")
        };
        assert!(packed.len() * 10 < *length, "{} of {length}", packed.len());
    }

    #[test]
    fn what_is_no_definition_is_kept_as_it_is() {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        let kept = Document::new(object.clone());
        assert_eq!((kept.head(), &*kept.whole()), (&object, &object));
    }
}
