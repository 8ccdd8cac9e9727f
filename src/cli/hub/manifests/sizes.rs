//! Sizes as Kubernetes writes them, of which a hub needs whole ones only: `512Mi`, `20Gi`.

/// The audit alone may take ten times as much.
const LEAST_STORAGE: u64 = 1 << 10;
/// What the container asks for.
const LEAST_MEMORY: u64 = 256;

pub(super) fn storage(text: &str) -> Result<String, String> {
    at_least(text, LEAST_STORAGE, "1Gi")
}

pub(super) fn memory(text: &str) -> Result<String, String> {
    at_least(text, LEAST_MEMORY, "256Mi")
}

fn at_least(text: &str, least: u64, shown: &str) -> Result<String, String> {
    match mebibytes(text) {
        None => Err("write 512Mi, 20Gi or 1Ti".to_owned()),
        Some(size) if size < least => Err(format!("less than {shown}")),
        Some(_) => Ok(text.to_owned()),
    }
}

fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "Mi" => 0,
        "Gi" => 10,
        "Ti" => 20,
        _ => return None,
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_large_enough() {
        for (text, size) in [
            ("512Mi", Some(512)),
            ("20Gi", Some(20 << 10)),
            ("1Ti", Some(1 << 20)),
            ("20G", None),
            ("20", None),
            ("1.5Gi", None),
            ("+1Gi", None),
            ("Gi", None),
            ("", None),
            ("99999999999999999999Mi", None),
            ("18446744073709551615Ti", None),
        ] {
            assert_eq!(mebibytes(text), size, "{text}");
        }
        assert_eq!(storage("1Gi"), Ok("1Gi".to_owned()));
        assert_eq!(storage("1023Mi"), Err("less than 1Gi".to_owned()));
        assert_eq!(memory("256Mi"), Ok("256Mi".to_owned()));
        assert_eq!(memory("255Mi"), Err("less than 256Mi".to_owned()));
        let written = "write 512Mi, 20Gi or 1Ti".to_owned();
        assert_eq!(memory("1G"), Err(written));
    }
}
