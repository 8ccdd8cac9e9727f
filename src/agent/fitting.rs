//! What the agent keeps in a ConfigMap as a list, as far as that holds it.

/// Bytes of a list. A ConfigMap holds 1 MiB in all (k8s.io/api/core/v1 `ConfigMap`), of which other keys need a part, and the API
/// server refuses a larger one whole.
pub(super) const MOST: usize = 600 << 10;

/// As many items, JSON each, as fit, in their order, as a list, and how many do not.
pub(super) fn list(items: impl IntoIterator<Item = String>) -> (String, usize) {
    let (mut text, mut beyond) = (String::from("["), 0);
    for item in items {
        // Brackets and comma.
        if text.len() + item.len() + 2 > MOST {
            beyond += 1;
            continue;
        }
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&item);
    }
    text.push(']');
    (text, beyond)
}
