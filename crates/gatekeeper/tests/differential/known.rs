//! What a gate that shares connections deliberately answers otherwise. Random scripts don't say it.

/// A kept script that begins so isn't mended yet.
pub(crate) const MARK: &str = "# known:";

/// Whether a statement outside a transaction block is heard otherwise. A batch that has only prepared, up
/// to a Flush, ends there, so that nobody waits for its client. What follows is another transaction, and
/// has no snapshot yet.
pub(crate) fn differs_outside(sql: &str) -> bool {
    sql.starts_with("SET TRANSACTION ISOLATION")
}

/// Whether a statement behind others of its batch is heard otherwise, for the same reason.
pub(crate) fn differs_in_a_batch(sql: &str) -> bool {
    sql.contains("ISOLATION")
}

/// Whether PostgreSQL takes a snapshot for a statement, and the gate, which answers for it, has none taken.
/// An isolation level can't be set behind a snapshot.
pub(crate) fn takes_no_snapshot(sql: &str) -> bool {
    sql.contains("DEALLOCATE")
}

/// Whether PostgreSQL may warn of a text that it only reads, and the gate, which answers for a failed
/// transaction, doesn't.
pub(crate) fn warns_of_its_text(sql: &str) -> bool {
    sql.contains('\\')
}

/// Whether a failed transaction describes a statement otherwise. What an EXECUTE or a FETCH returns depends
/// on what the server had prepared or opened, and the gate says that it returns rows.
pub(crate) fn differs_described(sql: &str) -> bool {
    sql.starts_with("EXECUTE") || sql.starts_with("FETCH")
}

/// Whether statements of one text are heard otherwise than each by itself. Where the gate has answered for a
/// failed transaction and its end, the server hears of what follows only, which is no transaction block by
/// itself.
pub(crate) fn differs_in_one_text(text: &str) -> bool {
    let ends = ["ROLLBACK; ", "COMMIT; ", "END; ", "ABORT; "].iter().any(|end| text.contains(end));
    ends && (text.contains("SET LOCAL") || text.contains("SET TRANSACTION")) || shows_another_start(text)
}

/// Whether statements of one text, or of a batch up to its Sync, may see what a RESET leaves. RESET returns
/// to the start-up value of the connection, and the session's own is set behind the text or the Sync. So
/// until then the session sees another `application_name`.
pub(crate) fn shows_another_start(text: &str) -> bool {
    let resets = ["RESET", "DEFAULT", "DISCARD ALL"].iter().any(|word| text.contains(word));
    resets && text.contains("application_name")
}
