use std::time::Duration;

use super::*;
use crate::assertion::{Actor, LIFETIME, binding};
use crate::keys::KeyPair;

mod namespaces;
mod read;

const NOW: i64 = 1_800_000_000;

/// One request through the gate, with all that may differ.
struct Case {
    policy: Policy,
    covered: Covered,
    claims: Claims,
    method: Method,
    target: String,
    upgrade: Option<Upgrade>,
    /// How far the hub's clock is ahead of this node's, in seconds.
    hub_ahead: i64,
    at: Instant,
}

impl Case {
    fn new(method: &str, target: &str) -> Self {
        let claims = Claims {
            iss: "hub".to_owned(),
            aud: "cluster".to_owned(),
            sub: "linesman:ada@example.com".to_owned(),
            grp: vec!["linesman:admin".to_owned()],
            act: None,
            jti: "r1".to_owned(),
            epoch: 7,
            iat: NOW,
            exp: NOW + LIFETIME,
            h: binding(method, target),
            ip: "10.0.0.1".to_owned(),
            mode: Mode::Full,
            ns: None,
        };
        let method = method.parse().unwrap();
        Self {
            policy: Policy::default(),
            covered: Covered::Cluster,
            claims,
            method,
            target: target.to_owned(),
            upgrade: None,
            hub_ahead: 0,
            at: Instant::now(),
        }
    }

    /// The same request under another id, so many seconds after this one.
    fn next(&self, id: &str, seconds: u64) -> Self {
        let mut next = Self::new(self.method.as_str(), &self.target);
        next.at = self.at + Duration::from_secs(seconds);
        next.claims(|c| id.clone_into(&mut c.jti))
    }

    /// A hub whose clock says something else; its assertions go by it.
    fn hub_ahead(mut self, seconds: i64) -> Self {
        self.hub_ahead = seconds;
        self.claims(|c| (c.iat, c.exp) = (c.iat + seconds, c.exp + seconds))
    }

    fn policy(mut self, key: &str, value: &str) -> Self {
        self.policy = Policy::parse(
            &[(key.to_owned(), value.to_owned())].into(),
            OffsetDateTime::UNIX_EPOCH,
        )
        .unwrap();
        self
    }

    fn claims(mut self, change: impl FnOnce(&mut Claims)) -> Self {
        change(&mut self.claims);
        self
    }

    fn upgrade(mut self, upgrade: Upgrade) -> Self {
        self.upgrade = Some(upgrade);
        self
    }

    fn run_with(&self, replay: &mut Replay) -> Result<Pass, Refusal> {
        let key = KeyPair::from_seed(&[3; 32]);
        let keyset = [HubKey {
            kid: "k".to_owned(),
            key: key.public().to_base64(),
            not_after: None,
        }];
        let assertion = assertion::sign(&self.claims, "k", |input| key.sign(input)).unwrap();
        let meta = ApiMeta {
            id: self.claims.request_id().to_owned(),
            epoch: 7,
            traceparent: None,
            assertion,
        };
        let session = Session {
            hub: "hub",
            cluster: "cluster",
            homes: Homes {
                agent: "linesman",
                argocd: "argocd",
            },
            epoch: 7,
            keyset: &keyset,
            hub_now: OffsetDateTime::from_unix_timestamp(NOW + self.hub_ahead).unwrap(),
            at: self.at,
            own_now: OffsetDateTime::from_unix_timestamp(NOW).unwrap(),
            covered: &self.covered,
        };
        let uri = self.target.parse().unwrap();
        let request = Request {
            method: &self.method,
            uri: &uri,
            meta: &meta,
            upgrade: self.upgrade,
        };
        check(&self.policy, &session, &request, replay)
    }

    /// `pass`, or `code reason`.
    fn verdict(&self) -> String {
        match self.run_with(&mut Replay::default()) {
            Ok(_) => "pass".to_owned(),
            Err(refusal) => format!("{} {}", refusal.code.as_u16(), refusal.reason),
        }
    }
}

#[test]
fn a_granted_request_passes_with_what_it_means() {
    let case = Case::new("GET", "/api/v1/namespaces/a/pods?limit=5");
    let pass = case.run_with(&mut Replay::default()).unwrap();
    assert_eq!(pass.claims, case.claims);
    assert_eq!(
        (pass.info.verb.as_str(), pass.info.namespace.as_str()),
        ("list", "a")
    );
}

#[test]
fn the_owner_can_switch_the_line_off() {
    let refusal = Case::new("GET", "/api")
        .policy("line", "off")
        .run_with(&mut Replay::default())
        .unwrap_err();
    assert_eq!(refusal.reason, "LineOff");
    assert!(
        refusal.next.contains("'line' in ConfigMap linesman-policy"),
        "{}",
        refusal.next
    );
    // 2027-01-15, a Friday, 08:00.
    assert_eq!(
        Case::new("GET", "/api")
            .policy("hours", "Fri 08:00-09:00")
            .verdict(),
        "pass"
    );
    assert_eq!(
        Case::new("GET", "/api")
            .policy("hours", "Fri 09:00-10:00")
            .verdict(),
        "403 OutOfHours"
    );
}

/// The owner's hours are of the owner's clock: a hub that lies about the time opens nothing, and one whose clock is wrong shuts nothing.
#[test]
fn a_hub_with_another_time_does_not_move_the_owners_hours() {
    for hours in [-1, 1, -24, 24 * 365].map(|hours| hours * 3_600) {
        let case = |window| {
            Case::new("GET", "/api")
                .policy("hours", window)
                .hub_ahead(hours)
        };
        assert_eq!(case("Fri 08:00-09:00").verdict(), "pass", "{hours}");
        for shut in ["Fri 07:00-08:00", "Fri 09:00-10:00", "Thu 00:00-24:00"] {
            assert_eq!(case(shut).verdict(), "403 OutOfHours", "{hours} {shut}");
        }
    }
    let refusal = Case::new("GET", "/api").policy("hours", "Mon 08:00-09:00");
    let refusal = refusal.run_with(&mut Replay::default()).unwrap_err();
    let said = "access through the line is open Mon 08:00-09:00 (UTC) only, and by the agent's clock it is Fri 08:00";
    assert_eq!(refusal.what, said);
}

/// L43
#[test]
fn assertions_for_something_else_are_refused() {
    let get = || Case::new("GET", "/api/v1/pods");
    for case in [
        get().claims(|c| "other".clone_into(&mut c.iss)),
        get().claims(|c| "other".clone_into(&mut c.aud)),
        get().claims(|c| c.epoch = 6),
        get().claims(|c| c.h = binding("GET", "/api/v1/secrets")),
        get().claims(|c| c.h = binding("DELETE", "/api/v1/pods")),
    ] {
        assert_eq!(case.verdict(), "403 Assertion");
    }
    // Whose clock is wrong cannot be known: nothing was sent on, so the user's next try is safe.
    for iat in [NOW - 200, NOW + 11] {
        let case = get().claims(|c| (c.iat, c.exp) = (iat, iat + 60));
        assert_eq!(case.verdict(), "503 Clock");
    }
}

/// L43, of one that comes again.
#[test]
fn an_assertion_is_good_for_one_request() {
    let (case, mut replay) = (Case::new("GET", "/api"), Replay::default());
    assert!(case.run_with(&mut replay).is_ok());
    assert_eq!(case.run_with(&mut replay).unwrap_err().reason, "Replay");
    let full = case.run_with(&mut Replay::new(0)).unwrap_err();
    assert_eq!((full.code.as_u16(), full.retry_after), (429, Some(1)));
}

/// The next line may come with another time: a hub was set right, or another replica answers.
#[test]
fn ids_are_remembered_for_90_s_whatever_becomes_of_the_hubs_clock() {
    for step in [-86_400, -600, 600, 86_400] {
        let (first, mut replay) = (Case::new("GET", "/api"), Replay::new(1));
        assert!(first.run_with(&mut replay).is_ok());
        let said = |case: Case, replay: &mut Replay| match case.run_with(replay) {
            Ok(_) => "pass",
            Err(refusal) => refusal.reason,
        };
        let soon = |id| first.next(id, 60).hub_ahead(step);
        assert_eq!(said(soon("r1"), &mut replay), "Replay", "{step}");
        assert_eq!(said(soon("r2"), &mut replay), "Busy", "{step}");
        let later = first.next("r3", 91).hub_ahead(step);
        assert_eq!(said(later, &mut replay), "pass", "{step}");
    }
}

#[test]
fn only_our_names_can_be_acted_as() {
    for name in [
        "",
        "ada",
        "linesman:",
        "system:masters",
        "linesman:*",
        "linesman:a b",
        "linesman:a\r\nX: y",
        "Linesman:a",
        "linesman:ä",
        &format!("linesman:{}", "x".repeat(201)),
    ] {
        let as_user = Case::new("GET", "/api").claims(|c| name.clone_into(&mut c.sub));
        assert_eq!(as_user.verdict(), "403 Name", "{name}");
        let as_group = Case::new("GET", "/api").claims(|c| c.grp.push(name.to_owned()));
        assert_eq!(as_group.verdict(), "403 Name", "{name}");
        let sub = name.to_owned();
        let actor = Case::new("GET", "/api").claims(|c| c.act = Some(Actor { sub }));
        assert_eq!(actor.verdict(), "403 Name", "{name}");
    }
    assert!(well_named("linesman:Ada.Lovelace+x_y@example.com:1-2"));
}

#[test]
fn groups_are_bounded() {
    let with =
        |n: usize| Case::new("GET", "/api").claims(|c| c.grp = vec!["linesman:g".to_owned(); n]);
    assert_eq!(with(32).verdict(), "pass");
    assert_eq!(with(33).verdict(), "403 Groups");
    assert_eq!(with(3).policy("maxGroups", "2").verdict(), "403 Groups");
}

#[test]
fn request_ids_cannot_carry_anything_else() {
    for id in ["a b", "a\nb", "a/b", &"x".repeat(65)] {
        assert_eq!(
            Case::new("GET", "/api")
                .claims(|c| id.clone_into(&mut c.jti))
                .verdict(),
            "403 RequestId",
            "{id}"
        );
    }
}

/// L42: a hub that signs for it makes no other method of it.
#[test]
fn methods_that_kubernetes_does_not_have_are_refused_here_too() {
    for method in ["TRACE", "CONNECT", "PRI", "get", "BREW"] {
        let refusal = Case::new(method, "/api/v1/pods").run_with(&mut Replay::default());
        assert_eq!(refusal.unwrap_err().code.as_u16(), 405, "{method}");
    }
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let passed = Case::new(method, "/api/v1/pods").run_with(&mut Replay::default());
        assert!(passed.is_ok(), "{method}: {:?}", passed.err());
    }
}

#[test]
fn paths_are_judged_here_too() {
    assert_eq!(
        Case::new("GET", "/debug/pprof").verdict(),
        "404 UnknownPath"
    );
    assert_eq!(Case::new("GET", "/api/v1/../v1").verdict(), "400 BadPath");
    assert_eq!(
        Case::new("GET", "/api/v1/nodes/n/proxy/exec/a").verdict(),
        "403 NodeProxy"
    );
    assert_eq!(
        Case::new("GET", "/api/v1/nodes/n/proxy/x")
            .policy("nodeProxy", "allow")
            .verdict(),
        "pass"
    );
}

#[test]
fn protocols_switch_only_where_kubernetes_does() {
    let exec = || Case::new("GET", "/api/v1/namespaces/a/pods/x/exec?command=sh");
    assert_eq!(exec().upgrade(Upgrade::WebSocket).verdict(), "pass");
    assert_eq!(exec().upgrade(Upgrade::Spdy).verdict(), "pass");
    let get = || Case::new("GET", "/api/v1/namespaces/a/pods/x");
    assert_eq!(get().upgrade(Upgrade::WebSocket).verdict(), "400 Upgrade");
    assert_eq!(get().upgrade(Upgrade::Spdy).verdict(), "400 Upgrade");
}
