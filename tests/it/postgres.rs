//! A PostgreSQL server of the tests' own: on a Unix socket and with TLS on loopback, in a directory that goes with it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::Connection as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// The server ends when its standard input does, so with the test program, however that ends. It says which of the given ports
/// it has: the first that is still free; an empty line = none, or it does not start.
const SERVE: &str = r#"
set -eu
place=$1 programs=$2
shift 2
"$programs/initdb" -D "$place/data" -U linesman -A trust -E UTF8 --locale=C --locale-provider=icu --icu-locale=en-US --no-sync >"$place/log" 2>&1
cat >>"$place/data/postgresql.conf" <<END
listen_addresses = '127.0.0.1'
ssl = on
ssl_cert_file = '$place/tls.crt'
ssl_key_file = '$place/tls.key'
unix_socket_directories = '$place'
max_connections = 400
fsync = off
full_page_writes = off
END
printf 'local all locked scram-sha-256\nlocal all all trust\nhostssl all all 127.0.0.1/32 trust\n' >"$place/data/pg_hba.conf"
taken=
for port; do
  if "$programs/pg_ctl" -D "$place/data" -l "$place/log" -o "-p $port" -t 120 -w start >/dev/null 2>&1; then
    taken=$port
    break
  fi
done
echo "$taken"
cat >/dev/null
"$programs/pg_ctl" -D "$place/data" -m immediate -w stop >/dev/null 2>&1
rm -rf "$place"
"#;

/// For it to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// An unprivileged user: the server does not run as root.
const NOBODY: u32 = 65_534;

struct Server {
    directory: PathBuf,
    port: u16,
    /// Ends with the program, and with it the process.
    _process: Child,
}

static SERVER: OnceCell<Server> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Makes an empty database; gives its URL.
pub(crate) async fn database() -> String {
    let server = SERVER.get_or_init(Server::start).await;
    let name = format!("hub{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut connection = sqlx::PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    // Only one at a time may copy the template.
    sqlx::raw_sql("SELECT pg_advisory_lock(1)")
        .execute(&mut connection)
        .await
        .unwrap();
    let make = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(make).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    server.url(&name)
}

/// The same database as a role that has to give a password, which is another one.
pub(crate) async fn with_wrong_password(url: &str) -> String {
    execute(
        url,
        "DO $$ BEGIN CREATE ROLE locked LOGIN PASSWORD 'right'; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    .await;
    url.replace("postgres://linesman@", "postgres://locked:hunter2@")
}

/// The same database by TLS, and the file with the server's certificate.
pub(crate) async fn with_tls(url: &str) -> (String, PathBuf) {
    let server = SERVER.get_or_init(Server::start).await;
    let (_, database) = url.rsplit_once('/').unwrap();
    let url = format!("postgres://linesman@localhost:{}/{database}", server.port);
    (url, server.directory.join("tls.crt"))
}

/// Changes the database behind the hub's back.
pub(crate) async fn execute(url: &str, statements: &str) {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

/// Ends the connections that hold locks for longer than a statement, that of the replica that leads among them.
pub(crate) async fn cut_locks(url: &str) {
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    execute(url, cut).await;
}

/// Takes the lock of the replica that leads, which would have it again in a moment, for as long as the connection lives.
pub(crate) async fn lead(url: &str) -> sqlx::PgConnection {
    const TAKE: &str = "DO $$ BEGIN
        WHILE NOT pg_try_advisory_lock(x'6c696e650004'::bigint) LOOP
            PERFORM pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
                AND classid = x'6c69'::int::oid AND objid = x'6e650004'::int::oid AND pid <> pg_backend_pid()
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
            PERFORM pg_sleep(0.02);
        END LOOP;
    END $$";
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(TAKE).execute(&mut connection).await.unwrap();
    connection
}

/// The rows of these tables as text.
pub(crate) async fn dump(url: &str, tables: &str) -> Vec<u8> {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let all = format!("SELECT string_agg(row::text, ' ') FROM (SELECT * FROM {tables}) AS row");
    let text: Option<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(all))
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    text.expect("there is something").into_bytes()
}

impl Server {
    async fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("linesman-pg-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&directory));
        std::fs::create_dir(&directory).unwrap();
        let root = std::fs::metadata(&directory)
            .map(|m| std::os::unix::fs::MetadataExt::uid(&m))
            .unwrap()
            == 0;
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (cert, key) = (directory.join("tls.crt"), directory.join("tls.key"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = if root {
            for path in [&directory, &cert, &key] {
                std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "sh",
            ]);
            command
        } else {
            Command::new("sh")
        };
        let mut child = command
            .args(["-c", SERVE, "sh"])
            .arg(&directory)
            .arg(programs())
            .args(free_ports().map(|port| port.to_string()))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = tokio::process::ChildStdout::from_std(child.stdout.take().unwrap()).unwrap();
        let (mut said, mut taken) = (BufReader::new(said), String::new());
        let read = timeout(PATIENCE, said.read_line(&mut taken)).await;
        let port: Option<u16> = read.ok().and_then(|_| taken.trim().parse().ok());
        let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        let port = port.unwrap_or_else(|| panic!("{}", log()));
        Self {
            directory,
            port,
            _process: child,
        }
    }

    fn url(&self, database: &str) -> String {
        let socket = self.directory.to_str().unwrap().replace('/', "%2F");
        format!("postgres://linesman@{socket}:{}/{database}", self.port)
    }
}

/// Each free a moment ago; the server cannot choose one itself.
fn free_ports() -> [u16; 4] {
    let all = [(); 4].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    all.each_ref().map(|free| free.local_addr().unwrap().port())
}

/// Where the server's programs are: Debian has a directory a version, and few of them on the PATH.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let found = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .max();
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|bin| has_all(bin))
    };
    found
        .or_else(on_path)
        .expect("PostgreSQL is installed; tests/prepare does it")
}

fn has_all(bin: &Path) -> bool {
    bin.join("initdb").exists() && bin.join("pg_ctl").exists()
}
