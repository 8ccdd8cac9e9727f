//! `linesman kubeconfig`: contexts that reach clusters through the hub, as the user, without any key of the cluster.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ArgGroup;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connect::{Access, Connect, is_stdin};
use super::exit::{Code, Failure};
use super::output::{counted, emit, progress_line};
use super::session;
use crate::wire::id::ClusterName;

/// How long another program may change a kubeconfig.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  linesman kubeconfig eu1 > eu1.kubeconfig
  linesman kubeconfig eu1 us1 --merge            # into $KUBECONFIG or ~/.kube/config
  kubectl --context linesman-eu1 get nodes

Contexts are called linesman-NAME. kubectl runs 'linesman credential' for the token, so the file holds no
secret. Merging leaves alone what is not of ours, and keeps what was set in our contexts (a namespace) and
clusters (a proxy-url).";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("whom").required(true).args(["names", "all"]))]
#[command(group = ArgGroup::new("target").multiple(true).args(["merge", "into"]))]
pub(super) struct Args {
    /// The clusters to reach
    names: Vec<ClusterName>,
    /// All clusters of the hub
    #[arg(long)]
    all: bool,
    /// Merge into $KUBECONFIG or ~/.kube/config instead of printing
    #[arg(long)]
    merge: bool,
    /// Merge into this file instead of printing
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// When merging: make the first cluster's context the current one
    #[arg(long = "use", requires = "target")]
    switch: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    if access.token_file.as_deref().is_some_and(is_stdin) {
        return Err(Failure::new(
            Code::Usage,
            "kubectl asks for the token again and again, and stdin has it once",
            "put the token into a file: --token-file FILE, or log in: linesman login",
        )
        .into());
    }
    let names = if args.all {
        client
            .clusters()
            .await?
            .into_iter()
            .map(|c| c.name)
            .collect()
    } else {
        for name in &args.names {
            client.cluster(name).await?;
        }
        args.names
    };
    let Some(first) = names.first() else {
        return Err(Failure::new(
            Code::NotFound,
            "the hub has no cluster",
            "add one: linesman cluster add NAME",
        )
        .into());
    };
    let ours = kubeconfig(&access, &names, &program());
    let path = match (args.into, args.merge) {
        (Some(path), _) => path,
        (None, true) => default_path()?,
        (None, false) => return emit(&crate::yaml::print(&ours)?),
    };
    let (path, displaced) = put(path, &ours, args.switch).await?;
    for warning in displaced {
        progress_line(&format!("warning: {warning}"));
    }
    let are = if names.len() == 1 { "is" } else { "are" };
    progress_line(&format!(
        "{} {are} in {}",
        counted(names.len(), "context"),
        path.display()
    ));
    progress_line(&format!(
        "next:  kubectl --context {} get nodes",
        context(first)
    ));
    Ok(())
}

fn context(name: &ClusterName) -> String {
    format!("linesman-{name}")
}

/// One entry per cluster, one user for the hub, whose exec plugin is this program.
fn kubeconfig(access: &Access, names: &[ClusterName], program: &str) -> Value {
    let host = access.hub.trim_start_matches("https://").replace('/', "-");
    let user = format!("linesman@{host}");
    let clusters = names.iter().map(|name| {
        let mut cluster = json!({ "server": format!("{}/clusters/{name}", access.hub) });
        if let Some(ca) = &access.ca {
            cluster["certificate-authority-data"] = json!(STANDARD.encode(ca));
        }
        json!({ "name": context(name), "cluster": cluster })
    });
    let contexts = names
        .iter()
        .map(|name| json!({ "name": context(name), "context": { "cluster": context(name), "user": user } }));
    let mut plugin = vec![
        "credential".to_owned(),
        "--hub".to_owned(),
        access.hub.clone(),
    ];
    if let Some(file) = &access.token_file {
        plugin.extend(["--token-file".to_owned(), file.display().to_string()]);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": names.first().map(context).unwrap_or_default(),
        "users": [{
            "name": user,
            "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": program,
                "args": plugin,
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": false,
                "installHint": "put the program 'linesman' on the PATH; it gives kubectl the token for the hub",
            }},
        }],
    })
}

/// `linesman` where the PATH finds this very program, else its full path.
fn program() -> String {
    let Ok(this) = std::env::current_exe() else {
        return "linesman".to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|d| d.join("linesman"))
        .find(|p| p.is_file());
    let same = found
        .and_then(|p| fs::canonicalize(p).ok())
        .is_some_and(|p| fs::canonicalize(&this).is_ok_and(|t| t == p));
    if same {
        "linesman".to_owned()
    } else {
        this.display().to_string()
    }
}

fn default_path() -> Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG")
        && let Some(first) = std::env::split_paths(&list).find(|p| !p.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        let what = "~/.kube/config has no place: HOME is not set";
        Failure::new(Code::Failed, what, "name the file: --into FILE")
    })?;
    Ok(Path::new(&home).join(".kube/config"))
}

/// Merges our entries into a file, and says where that is and what led elsewhere before.
async fn put(path: PathBuf, ours: &Value, switch: bool) -> Result<(PathBuf, Vec<String>)> {
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
    use crate::secret::Secret;

    fn access(token_file: Option<&str>) -> Access {
        Access {
            hub: "https://hub.example.org:8443".to_owned(),
            ca: Some("PEM".to_owned()),
            token: Some(Secret::new("lmt1.id.hunter2".to_owned())),
            expires_at: None,
            token_file: token_file.map(PathBuf::from),
            renewable: false,
            renews: false,
        }
    }

    fn names(names: &[&str]) -> Vec<ClusterName> {
        names.iter().map(|n| n.parse().unwrap()).collect()
    }

    #[test]
    fn a_kubeconfig_names_the_plugin_and_holds_no_token() {
        let config = kubeconfig(
            &access(Some("/run/token")),
            &names(&["eu1", "us1"]),
            "linesman",
        );
        assert!(!config.to_string().contains("hunter2"));
        assert_eq!(
            config["clusters"][1],
            json!({
                "name": "linesman-us1",
                "cluster": {
                    "server": "https://hub.example.org:8443/clusters/us1",
                    "certificate-authority-data": "UEVN",
                },
            })
        );
        assert_eq!(config["current-context"], "linesman-eu1");
        assert_eq!(
            config["users"][0]["user"]["exec"]["args"],
            json!([
                "credential",
                "--hub",
                "https://hub.example.org:8443",
                "--token-file",
                "/run/token"
            ])
        );
        assert_eq!(
            config["contexts"][0]["context"]["user"],
            config["users"][0]["name"]
        );
    }

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
