use time::macros::datetime;

use super::*;

const MADE: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);

/// A program's, for one cluster.
fn token(id: &str, days: i64) -> (ApiToken, String) {
    let token = ApiToken {
        id: id.to_owned(),
        user_id: "u".to_owned(),
        hash: [0; 32],
        title: "deploy".to_owned(),
        scopes: vec!["kube".to_owned()],
        clusters: Some(["eu1".parse().unwrap()].into()),
        created_by: "admin".to_owned(),
        created_at: MADE,
        expires_at: Some(MADE + Duration::days(days)),
        revoked_at: None,
    };
    (token, "ci".to_owned())
}

fn day(days: i64) -> OffsetDateTime {
    MADE + Duration::days(days)
}

/// The texts of what is told on each of these days, by a hub that looks no more often.
fn told(tokens: &[(ApiToken, String)], days: &[i64]) -> Vec<(i64, String)> {
    let mut last = None;
    let mut all = Vec::new();
    for now in days {
        let notices = due(tokens, last, day(*now));
        if !notices.is_empty() {
            last = Some(day(*now));
        }
        all.extend(notices.into_iter().map(|notice| (*now, notice.text)));
    }
    all
}

#[test]
fn the_end_of_a_token_is_told_a_fortnight_and_two_days_before_it() {
    let tokens = [token("t1", 90)];
    let text = "token t1 of ci ('deploy') ends at 2026-04-01T00:00:00.000Z; what uses it is refused from then on";
    let days: Vec<i64> = (0..90).collect();
    let expected = [76, 88].map(|day| (day, text.to_owned()));
    assert_eq!(told(&tokens, &days), expected);
    // A hub that looks for the first time, or was away, tells it once.
    assert_eq!(told(&tokens, &[80, 81]), [(80, text.to_owned())]);
    assert_eq!(told(&tokens, &[89]), [(89, text.to_owned())]);
    // A clock that was ahead keeps nothing from being told.
    assert_eq!(due(&tokens, Some(day(400)), day(75)), []);
    assert_eq!(due(&tokens, Some(day(400)), day(76)).len(), 1);
}

#[test]
fn who_made_a_token_for_a_short_time_knows_of_its_end_and_so_does_a_person() {
    let days: Vec<i64> = (0..90).collect();
    let of = |token: (ApiToken, String)| -> Vec<i64> {
        let told = told(&[token], &days);
        told.into_iter().map(|(day, _)| day).collect()
    };
    assert_eq!(of(token("t", 29)), [15, 27]);
    assert_eq!(of(token("t", 28)), [26]);
    assert_eq!(of(token("t", 5)), [3]);
    assert_eq!(of(token("t", 4)), [0; 0]);
    let (mut own, user) = token("t", 90);
    own.scopes = Vec::new();
    assert_eq!(of((own.clone(), user.clone())), [0; 0]);
    own.expires_at = None;
    own.scopes = vec!["viewer".to_owned()];
    assert_eq!(of((own, user)), [0; 0]);
}

#[test]
fn a_notice_names_the_token_its_clusters_and_the_command_for_the_next_one() {
    let notice = |(token, user): (ApiToken, String)| due(&[(token, user)], None, day(80)).remove(0);
    let told = notice(token("t1", 90));
    assert_eq!(
        told,
        Notice {
            state: State::Open,
            severity: Severity::Warning,
            class: "TokenEnds".to_owned(),
            clusters: vec!["eu1".parse().unwrap()],
            clusters_total: 1,
            text: told.text.clone(),
            since: "2026-03-18T00:00:00.000Z".to_owned(),
            next: Some(
                "linesman token create --user ci --title NAME --scope kube --cluster eu1"
                    .to_owned()
            ),
        }
    );
    let (mut argocd, user) = token("t1", 90);
    argocd.title = NewApiToken::argocd_title(&"eu1".parse().unwrap());
    let next = "linesman cluster argocd-secret eu1 --user ci";
    let told = notice((argocd.clone(), user.clone()));
    assert_eq!(told.next.as_deref(), Some(next));
    // For all clusters, as one with a role is.
    argocd.clusters = None;
    let told = notice((argocd, user));
    assert_eq!((told.clusters_total, told.clusters), (0, Vec::new()));
}

#[test]
fn tokens_that_were_made_together_share_a_notice() {
    let tokens: Vec<_> = (0..12)
        .map(|n| token(&format!("t{n:02}"), 101 - n))
        .collect();
    let notices = due(&tokens, None, day(88));
    assert_eq!(notices.len(), 1);
    let text = &notices[0].text;
    let first = "token t11 of ci ('deploy') ends at 2026-04-01T00:00:00.000Z, token t10 of";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains(", and 2 more; what uses it"), "{text}");
    let next = notices[0].next.as_deref();
    assert_eq!(next, Some("linesman token list --all"));
    assert_eq!(due(&tokens[8..], None, day(88)).len(), 4);
}

#[test]
fn the_doctor_names_what_ends_for_as_long_as_it_does() {
    let tokens = [token("t1", 90), token("t2", 200)];
    let well = Ok("none of a program's ends soon".to_owned());
    assert_eq!(outlook(&tokens, day(75)), well);
    let ends = "token t1 of ci ('deploy') ends at 2026-04-01T00:00:00.000Z";
    for now in [76, 80, 89] {
        assert_eq!(outlook(&tokens, day(now)), Err(ends.to_owned()), "{now}");
    }
    assert_eq!(outlook(&[], day(80)), well);
}
