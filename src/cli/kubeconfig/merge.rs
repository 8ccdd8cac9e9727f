//! Our entries in a file that other programs and people write, too: what is theirs stays.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cli::exit::{Code, Failure};
use crate::cli::session;

/// How long another program may change a kubeconfig.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// Merges our entries into a file, and says where that is and what led elsewhere before.
pub(super) async fn put(
    path: PathBuf,
    ours: &Value,
    switch: bool,
) -> Result<(PathBuf, Vec<String>)> {
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    }
    let _lock = Lock::take(&path).await?;
    // A link, as some keep for ~/.kube/config, stays one.
    let path = fs::canonicalize(&path).unwrap_or(path);
    let before = read(&path)?;
    let displaced = displaced(&before, ours);
    let merged = merge(before, ours, switch);
    session::replace(&path, crate::yaml::print(&merged)?.as_bytes())?;
    Ok((path, displaced))
}

/// Held while a kubeconfig is read, changed and written: the lock of kubectl (client-go, `tools/clientcmd/loader.go`), a file
/// that is there or not.
struct Lock(PathBuf);

impl Lock {
    async fn take(path: &Path) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        let until = Instant::now() + PATIENCE;
        loop {
            match fs::File::create_new(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    return Err(e).with_context(|| format!("lock {}", path.display()));
                }
                Err(_) if Instant::now() < until => sleep(LOOK).await,
                Err(_) => {
                    let lock = lock.display();
                    let text = format!("{lock} is there: another program changes that file");
                    let next = format!("run it again; where kubectl left it behind: rm {lock}");
                    return Err(Failure::new(Code::Conflict, text, next).into());
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

fn read(path: &Path) -> Result<Value> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
    };
    let shown = path.display();
    let mut documents =
        crate::yaml::documents(&text).map_err(|e| not_ours(format!("read {shown}: {e}")))?;
    match documents.len() {
        0 => Ok(json!({ "apiVersion": "v1", "kind": "Config" })),
        1 if documents[0].is_object() => Ok(documents.remove(0)),
        _ => Err(not_ours(format!("{shown} is not a kubeconfig")).into()),
    }
}

/// Of a file that holds something else, or what somebody broke.
fn not_ours(what: String) -> Failure {
    let next = "mend that file, name another one with --into, or print and merge by hand: linesman kubeconfig NAME";
    Failure::new(Code::Failed, what, next)
}

/// Entries of our names that lead to another server, such as a cluster of another hub that is called the same.
fn displaced(before: &Value, ours: &Value) -> Vec<String> {
    fn entries(of: &Value) -> impl Iterator<Item = (&str, &str)> {
        let all = of["clusters"].as_array().into_iter().flatten();
        all.filter_map(|e| Some((e["name"].as_str()?, e["cluster"]["server"].as_str()?)))
    }
    let moved = entries(ours).filter_map(|(name, server)| {
        let (_, old) = entries(before).find(|(known, old)| *known == name && *old != server)?;
        Some(format!(
            "context {name} leads to {server} now, and led to {old}; a file for each keeps them apart: --into FILE"
        ))
    });
    moved.collect()
}

/// Puts our entries in, each in the place of one of the same name; all else stays.
fn merge(mut all: Value, ours: &Value, switch: bool) -> Value {
    for list in ["clusters", "contexts", "users"] {
        let mut entries = all[list].as_array().cloned().unwrap_or_default();
        for entry in ours[list].as_array().into_iter().flatten() {
            match entries.iter_mut().find(|e| e["name"] == entry["name"]) {
                Some(place) => *place = kept(list, place, entry),
                None => entries.push(entry.clone()),
            }
        }
        all[list] = Value::Array(entries);
    }
    let unset = all["current-context"].as_str().is_none_or(str::is_empty);
    if switch || unset {
        all["current-context"] = ours["current-context"].clone();
    }
    all
}

/// Our entry, with what somebody else wrote into the one before: the namespace of a context, say, or the proxy of a cluster.
fn kept(list: &str, before: &Value, ours: &Value) -> Value {
    let (what, mine): (&str, &[&str]) = match list {
        "contexts" => ("context", &["cluster", "user"]),
        // What belongs to another server does not fit this one.
        "clusters" if before["cluster"]["server"] == ours["cluster"]["server"] => (
            "cluster",
            &[
                "server",
                "certificate-authority",
                "certificate-authority-data",
                "insecure-skip-tls-verify",
            ],
        ),
        _ => return ours.clone(),
    };
    let mut entry = ours.clone();
    let theirs = before[what].as_object().into_iter().flatten();
    for (key, value) in theirs.filter(|(key, _)| !mine.contains(&key.as_str())) {
        entry[what][key] = value.clone();
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::connect::Access;
    use crate::cli::kubeconfig::kubeconfig;
    use crate::cli::kubeconfig::tests::{access, names};

    #[test]
    fn merging_twice_changes_nothing_and_keeps_what_others_wrote() {
        let ours = kubeconfig(&access(None), &names(&["eu1"]), "linesman");
        let theirs = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "kind", "preferences": {},
            "clusters": [{ "name": "kind", "cluster": { "server": "https://127.0.0.1" } }],
        });
        let once = merge(theirs, &ours, false);
        assert_eq!(once["current-context"], "kind");
        assert_eq!(once["clusters"].as_array().map(Vec::len), Some(2));
        assert_eq!(merge(once.clone(), &ours, false), once);
        assert_eq!(displaced(&once, &ours), [""; 0]);
        assert_eq!(merge(once, &ours, true)["current-context"], "linesman-eu1");
    }

    /// `kubectl config set-context --current --namespace=shop` outlives the next merge.
    #[test]
    fn what_others_wrote_into_our_entries_is_kept() {
        let ours = kubeconfig(&access(None), &names(&["eu1"]), "linesman");
        let mut theirs = ours.clone();
        let extensions = json!([{ "name": "k9s", "extension": { "colour": "red" } }]);
        theirs["contexts"][0]["context"]["namespace"] = json!("shop");
        theirs["contexts"][0]["context"]["extensions"] = extensions.clone();
        theirs["contexts"][0]["context"]["user"] = json!("somebody");
        let cluster = &mut theirs["clusters"][0]["cluster"];
        cluster["proxy-url"] = json!("http://proxy:3128");
        cluster["insecure-skip-tls-verify"] = json!(true);
        cluster["certificate-authority-data"] = json!("b2xk");
        let mut expected = ours.clone();
        expected["contexts"][0]["context"]["namespace"] = json!("shop");
        expected["contexts"][0]["context"]["extensions"] = extensions;
        expected["clusters"][0]["cluster"]["proxy-url"] = json!("http://proxy:3128");
        assert_eq!(merge(theirs.clone(), &ours, false), expected);

        // The way to another hub is not this one's.
        theirs["clusters"][0]["cluster"]["server"] = json!("https://b.example.org/clusters/eu1");
        expected["clusters"] = ours["clusters"].clone();
        assert_eq!(merge(theirs, &ours, false), expected);
    }

    #[test]
    fn a_file_that_is_broken_is_to_be_mended_or_left_alone() {
        let name = format!("linesman-kubeconfig-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        let next = "mend that file, name another one with --into, or print and merge by hand: linesman kubeconfig NAME";
        for (text, says) in [
            ("clusters: [", "YAML cannot be read: "),
            ("- a\n- b\n", "document 1 is not a mapping"),
            ("a: 1\n---\nb: 2\n", "is not a kubeconfig"),
        ] {
            fs::write(&file, text).unwrap();
            let failure = read(&file).unwrap_err().downcast::<Failure>().unwrap();
            let shown = file.display().to_string();
            let told = failure.message.contains(&shown) && failure.message.contains(says);
            assert!(told, "{failure:?}");
            assert_eq!((failure.code, &*failure.next), (Code::Failed, next));
        }
        fs::remove_file(file).unwrap();
    }

    /// Who has two hubs would send commands for the one cluster to the other.
    #[test]
    fn a_cluster_of_another_hub_by_the_same_name_is_not_replaced_in_silence() {
        let ours = kubeconfig(&access(None), &names(&["eu1", "us1"]), "linesman");
        let other = Access {
            hub: "https://b.example.org".to_owned(),
            ..access(None)
        };
        let theirs = kubeconfig(&other, &names(&["eu1"]), "linesman");
        assert_eq!(
            displaced(&theirs, &ours),
            [
                "context linesman-eu1 leads to https://hub.example.org:8443/clusters/eu1 now, and led to \
              https://b.example.org/clusters/eu1; a file for each keeps them apart: --into FILE"
            ]
        );
    }
}
