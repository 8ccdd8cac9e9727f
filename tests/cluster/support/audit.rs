//! The API server's own audit log: when something happened and who did it, without asking either side.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A place in the log, from which on it is read. The API server begins another file whenever one is full, and the older ones have
/// names by which they are in order.
pub(crate) struct Mark {
    file: PathBuf,
    /// Of the file that it was, whatever its name is by now; none = all that there is is read.
    inode: Option<u64>,
    from: u64,
}

/// One request that was answered.
pub(crate) struct Answered {
    pub(crate) at: OffsetDateTime,
    pub(crate) user: String,
    /// The id of the token that it came with, `JTI=…`.
    pub(crate) credential: String,
    pub(crate) verb: String,
    /// `customresourcedefinitions`, with the subresource behind a slash where there is one.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) code: u64,
    /// Asked for in a dry run.
    pub(crate) dry: bool,
}

impl Mark {
    /// The log's end as it is now.
    pub(crate) fn now(log: &Path) -> Self {
        let file = fs::metadata(log).expect("the lab's API server writes an audit log");
        Self {
            file: log.to_owned(),
            inode: Some(file.ino()),
            from: file.len(),
        }
    }

    /// All of it.
    pub(crate) fn beginning(log: &Path) -> Self {
        Self {
            file: log.to_owned(),
            inode: None,
            from: 0,
        }
    }

    /// Requests answered since, in their order.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        self.events().iter().filter_map(answered).collect()
    }

    /// All that was written since, as it is there. The last line may be half written.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut files = parts(&self.file);
        if let Some(inode) = self.inode {
            let of_mark = |file: &File| file.metadata().unwrap().ino() == inode;
            let first = files.iter().position(of_mark);
            files.drain(..first.expect("the part of the log that the mark is in is there"));
            files[0].seek(SeekFrom::Start(self.from)).unwrap();
        }
        let mut text = String::new();
        for file in &mut files {
            file.read_to_string(&mut text).unwrap();
        }
        let lines = text.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The first write of the agent that mends something: neither its Lease nor its records, nor a probe.
    pub(crate) fn first_mending_write(&self) -> Option<OffsetDateTime> {
        let all = self.answered();
        all.iter().find(|a| mends(a)).map(|a| a.at)
    }

    /// What an agent with this token wrote that mends something.
    pub(crate) fn mended_by(&self, credential: &str) -> Vec<String> {
        let all = self.answered();
        let by = all
            .iter()
            .filter(|a| a.credential == credential && mends(a));
        by.map(|a| format!("{} {}/{}", a.verb, a.resource, a.name))
            .collect()
    }

    /// How many requests the agent made, of whatever kind; watches count when they end.
    pub(crate) fn requests_of_agent(&self) -> usize {
        let all = self.answered();
        all.iter()
            .filter(|a| a.user.ends_with(":linesman:linesman-agent"))
            .count()
    }

    /// What the agent wrote in a namespace, and of what belongs to none but the engines'. Roles and bindings of its own are not.
    pub(crate) fn written_in(&self, namespace: &str) -> Vec<String> {
        let of_engines = ["customresourcedefinitions", "namespaces"];
        let rights = ["clusterroles", "clusterrolebindings"];
        let is_right = |a: &Answered| {
            rights.contains(&a.resource.as_str()) && !a.name.starts_with("linesman-")
        };
        let all = self.answered();
        let by = all.iter().filter(|a| {
            let of_engines = of_engines.contains(&a.resource.as_str()) || is_right(a);
            mends(a) && (a.namespace == namespace || of_engines)
        });
        by.map(|a| format!("{} {}/{}", a.verb, a.resource, a.name))
            .collect()
    }

    /// How many Pods of this name were made, as those of a StatefulSet are again and again.
    pub(crate) fn pods_made(&self, namespace: &str, name: &str) -> usize {
        let all = self.answered().into_iter();
        let made = all.filter(|a| {
            let pod = (a.resource.as_str(), a.namespace.as_str(), a.name.as_str());
            pod == ("pods", namespace, name) && a.verb == "create" && a.code == 201 && !a.dry
        });
        made.count()
    }

    /// The Pods that the agent deleted, by which it restarts what they run.
    pub(crate) fn pods_deleted_by_agent(&self) -> Vec<String> {
        let all = self.answered().into_iter();
        let by_agent = all.filter(|a| {
            a.user.ends_with(":linesman:linesman-agent")
                && a.verb.starts_with("delete")
                && a.resource == "pods"
        });
        by_agent.map(|a| a.name).collect()
    }

    /// What the agent deleted of the kinds that no repair may ever delete.
    pub(crate) fn forbidden_deletions(&self) -> Vec<String> {
        let never = [
            "customresourcedefinitions",
            "namespaces",
            "persistentvolumeclaims",
        ];
        let by_agent = |a: &&Answered| {
            a.verb.starts_with("delete")
                && a.user.contains(":linesman:")
                && never.contains(&a.resource.as_str())
        };
        let all = self.answered();
        let named = all.iter().filter(by_agent);
        named
            .map(|a| format!("{}/{}", a.resource, a.name))
            .collect()
    }
}

/// The log's files, the oldest first: beside `audit.log` those that were full, `audit-TIME.log`.
fn parts(log: &Path) -> Vec<File> {
    // Opened first: should it be full now, it is among the others by then, and the one that is begun is for the next look.
    let newest = File::open(log).unwrap();
    let inode = newest.metadata().unwrap().ino();
    let names = fs::read_dir(log.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().path());
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("audit-") && path.extension() == log.extension()
    };
    let mut older: Vec<PathBuf> = names.filter(is_part).collect();
    older.sort();
    // One may be deleted meanwhile, being the oldest.
    let files = older.iter().filter_map(|path| File::open(path).ok());
    let mut files: Vec<File> = files
        .filter(|file| file.metadata().unwrap().ino() != inode)
        .collect();
    files.push(newest);
    files
}

fn answered(event: &Value) -> Option<Answered> {
    if event["stage"] != "ResponseComplete" {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let mut resource = text(&object["resource"]);
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    Some(Answered {
        at: OffsetDateTime::parse(event["stageTimestamp"].as_str()?, &Rfc3339).ok()?,
        user: text(&event["user"]["username"]),
        credential: text(&event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]),
        verb: text(&event["verb"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        dry: event["requestURI"].as_str()?.contains("dryRun=All"),
    })
}

fn mends(request: &Answered) -> bool {
    let records = [
        "leases",
        "events",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
    ];
    // Asking a sync object for an answer and giving one back to the catalog are both patches of it.
    let asked = [
        "gitrepositories",
        "kustomizations",
        "applications",
        "applicationsets",
        "helmreleases",
    ];
    let probe = request.verb == "patch"
        && asked.contains(&request.resource.as_str())
        && request.code == 200;
    // Its own Secrets hold keys and state: written on, they are records as well.
    let kept = request.verb == "patch" && request.namespace == "linesman";
    request.user.ends_with(":linesman:linesman-agent")
        && ["create", "patch", "update", "delete"].contains(&request.verb.as_str())
        && !records.contains(&request.resource.as_str())
        && !request.resource.ends_with("/token")
        && !(request.resource == "configmaps" && request.name.starts_with("linesman-"))
        && !(request.resource == "clusterroles" && request.name == "linesman-line-subjects")
        && !(request.resource == "secrets" && kept)
        && !probe
        && !request.dry
}

/// A mark holds when the file that it was in is full and has another name; what came after it is read across all files.
#[test]
#[ignore = "with all others of this program: make test"]
fn a_mark_outlives_the_file_that_it_was_in() {
    let directory = super::scratch().join(format!("marks-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let log = directory.join("audit.log");
    fs::write(directory.join("audit.policy.yaml"), "{\"n\": 9}\n").unwrap();
    let full = |time: &str| fs::rename(&log, directory.join(format!("audit-{time}.log"))).unwrap();
    fs::write(&log, "{\"n\": 0}\n").unwrap();
    let mark = Mark::now(&log);
    fs::write(&log, "{\"n\": 0}\n{\"n\": 1}\n").unwrap();
    full("2026-01-31T23-59-59.000");
    fs::write(&log, "{\"n\": 2}\n").unwrap();
    full("2026-02-01T00-00-00.000");
    fs::write(&log, "{\"n\": 3}\n{\"n\":").unwrap();
    let numbers = |mark: &Mark| {
        let events = mark.events().into_iter();
        events.map(|event| event["n"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&mark), [1, 2, 3]);
    assert_eq!(numbers(&Mark::beginning(&log)), [0, 1, 2, 3]);
    fs::remove_dir_all(directory).unwrap();
}
