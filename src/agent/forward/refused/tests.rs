use serde_json::json;

use super::*;

const LINE: &str = "system:serviceaccount:linesman:linesman-line";
/// What somebody asks for who wants to be read as the API server.
const IMITATION: &str = r#"" is forbidden: User "system:serviceaccount:linesman:linesman-line" cannot impersonate resource "users"#;

/// A refusal: group, kind and name of what was asked for, and what follows; the kind is empty for a path of the API.
type Row<'a> = ([&'a str; 3], &'a str);

/// As `NewForbidden` puts it.
fn message(([group, kind, name], reason): Row<'_>) -> String {
    let resource = match (group, kind) {
        (_, "") => return format!("forbidden: {reason}"),
        ("", kind) => kind.to_owned(),
        (group, kind) => format!("{kind}.{group}"),
    };
    match name {
        "" => format!("{resource} is forbidden: {reason}"),
        name => format!("{resource} {name:?} is forbidden: {reason}"),
    }
}

fn as_json(row: Row<'_>) -> Vec<u8> {
    let [group, kind, name] = row.0;
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": message(row), "details": {"name": name, "group": group, "kind": kind},
    });
    status.to_string().into_bytes()
}

/// A field of bytes in protobuf, its length written in two bytes.
fn packed(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len();
    let low = u8::try_from(length % 128).unwrap() | 128;
    let high = u8::try_from(length / 128).unwrap();
    [&[(number << 3) | 2, low, high][..], bytes].concat()
}

fn as_protobuf(row: Row<'_>) -> Vec<u8> {
    let [group, kind, name] = row.0;
    let fields = [(1, name), (2, group), (3, kind)];
    let details = fields.map(|(number, text)| packed(number, text.as_bytes()));
    let status = [
        packed(1, b""),
        packed(2, b"Failure"),
        packed(3, message(row).as_bytes()),
        packed(4, b"Forbidden"),
        packed(5, &details.concat()),
        // The code, 403, and a field of each kind that none reads.
        vec![6 << 3, 147, 3],
        vec![(7 << 3) | 1, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![(8 << 3) | 5, 0, 0, 0, 0],
    ];
    [
        MAGIC.to_vec(),
        packed(1, b"v1 Status"),
        packed(2, &status.concat()),
    ]
    .concat()
}

fn is_of_acting_in_both_forms(row: Row<'_>) -> bool {
    let said = is_of_acting(Form::Json, &as_json(row), "linesman");
    let packed = is_of_acting(Form::Protobuf, &as_protobuf(row), "linesman");
    assert_eq!(said, packed, "{row:?}");
    said
}

/// The texts of Kubernetes 1.36, by its classic impersonation and by the constrained one.
#[test]
fn a_refusal_to_let_the_line_act_as_somebody_is_known() {
    let authentication = "authentication.k8s.io";
    for (what, cannot) in [
        (
            ["", "users", "linesman:ada"],
            r#"impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            ["", "groups", "linesman:a\"b"],
            r#"impersonate resource "groups" in API group "" at the cluster scope: RBAC: not found"#,
        ),
        (
            [authentication, "users", "linesman:ada"],
            r#"impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
        (
            ["apps", "deployments", "web"],
            r#"impersonate-on:user-info:get resource "deployments/scale" in API group "apps" in the namespace "a""#,
        ),
        (
            ["", "pods", ""],
            r#"impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope"#,
        ),
        (
            ["", "pods", IMITATION],
            r#"impersonate-on:user-info:get resource "pods" in API group "" in the namespace "a""#,
        ),
        (
            ["", "", ""],
            r#"impersonate-on:user-info:get path "/version""#,
        ),
    ] {
        let reason = format!("User {LINE:?} cannot {cannot}");
        assert!(
            is_of_acting_in_both_forms((what, reason.as_str())),
            "{reason}"
        );
    }
}

/// L11: whatever a name, a resource or a group is like, the words are those of the user's own refusal.
#[test]
fn what_was_asked_for_does_not_pass_for_who_was_refused() {
    let get =
        r#"User "linesman:ada" cannot get resource "pods" in API group "" in the namespace "a""#;
    let bare = format!("x{}", IMITATION.trim_start_matches('"'));
    let escaped = format!("\\{IMITATION}");
    let (bare, escaped) = (bare.as_str(), escaped.as_str());
    for (what, reason) in [
        (
            [
                "",
                "pods",
                "cannot impersonate resource system:serviceaccount:",
            ],
            get,
        ),
        (["", "pods", IMITATION], get),
        (["", "pods", escaped], get),
        (["", bare, ""], get),
        (["", bare, "x"], get),
        ([bare, "pods", "x"], get),
        (["", "pods", ""], get),
        (
            ["", "", ""],
            r#"User "linesman:ada" cannot get path "/version""#,
        ),
        (
            ["", "users", "linesman:ada"],
            r#"User "system:serviceaccount:linesman:other" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            ["", "pods", "x"],
            r#"User "system:serviceaccount:linesman:linesman-line" cannot get resource "pods" in API group "" in the namespace "a""#,
        ),
        (
            ["", "pods", "x"],
            r#"admission webhook "w" denied the request: pods "x" is forbidden: User "system:serviceaccount:linesman:linesman-line" cannot impersonate resource "users""#,
        ),
    ] {
        assert!(
            !is_of_acting_in_both_forms((what, reason)),
            "{what:?} {reason}"
        );
    }
}

/// It is never read beyond its end, and what is no `Status` refuses nothing.
#[test]
fn what_is_cut_or_no_status_says_nothing() {
    let reason = format!("User {LINE:?} cannot impersonate resource \"users\"");
    let row = (["", "users", "linesman:ada"], reason.as_str());
    for (form, whole) in [
        (Form::Json, as_json(row)),
        (Form::Protobuf, as_protobuf(row)),
    ] {
        assert!(is_of_acting(form, &whole, "linesman"));
        assert!(!is_of_acting(form, &whole, "other"));
        for end in 0..whole.len() {
            assert!(
                !is_of_acting(form, &whole[..end], "linesman"),
                "{form:?} {end}"
            );
        }
    }
    for text in [
        "[]",
        "null",
        "{}",
        r#"{"message":1}"#,
        message(row).as_str(),
    ] {
        assert!(
            !is_of_acting(Form::Json, text.as_bytes(), "linesman"),
            "{text}"
        );
    }
    let endless = [MAGIC, &[0xff; 32]].concat();
    assert!(!is_of_acting(Form::Protobuf, &endless, "linesman"));
}

#[test]
fn forms_are_told_by_the_content_type() {
    for (kind, form) in [
        ("application/json", Some(Form::Json)),
        ("application/json; charset=utf-8", Some(Form::Json)),
        ("application/vnd.kubernetes.protobuf", Some(Form::Protobuf)),
        ("application/cbor", None),
        ("text/plain", None),
        ("", None),
    ] {
        assert_eq!(Form::of(kind.as_bytes()), form, "{kind}");
    }
}
