//! Keys that sign the catalog.

use sqlx::FromRow;

use super::{Connection, Database, corrupt, db, from_ms, to_ms};
use crate::hub::signers::{self, Signer};
use crate::hub::store::Result;

#[derive(FromRow)]
struct Row {
    public: String,
    added_by: String,
    added_at: i64,
}

impl Row {
    fn signer(self) -> Result<Signer> {
        let key = signers::key(&self.public);
        Ok(Signer {
            key: key.map_err(corrupt("read a signer's key"))?,
            text: self.public,
            added_by: self.added_by,
            added_at: from_ms(self.added_at),
        })
    }
}

async fn all(connection: &mut Connection) -> Result<Vec<Signer>> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT * FROM catalog_signer ORDER BY added_at, fingerprint")
            .fetch_all(connection)
            .await
            .map_err(db("read signers' keys"))?;
    rows.into_iter().map(Row::signer).collect()
}

impl Database {
    pub async fn signers(&self) -> Result<Vec<Signer>> {
        let reader = self.readers.acquire().await;
        all(&mut *reader.map_err(db("read signers' keys"))?).await
    }

    pub async fn change_signers(&self, before: Vec<Signer>, after: Vec<Signer>) -> Result<bool> {
        const DOING: &str = "store signers' keys";
        let mut write = self.begin(DOING).await?;
        if all(&mut write.tx).await? != before {
            return Ok(false);
        }
        sqlx::query("DELETE FROM catalog_signer")
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        for signer in after {
            sqlx::query(
                "INSERT INTO catalog_signer (fingerprint, public, added_by, added_at) VALUES ($1, $2, $3, $4)",
            )
            .bind(&signer.key.fingerprint)
            .bind(&signer.text)
            .bind(&signer.added_by)
            .bind(to_ms(signer.added_at))
            .execute(&mut *write.tx)
            .await
            .map_err(db(DOING))?;
        }
        write.commit(DOING).await?;
        Ok(true)
    }
}
