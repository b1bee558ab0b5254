//! The words that the readers of this module tell apart; all others are [`Keyword::None`].

/// Declares the enum and its lookup from one list.
macro_rules! keywords {
    ($($text:literal $name:ident)*) => {
        /// A word that means something here. PostgreSQL's own list is longer; what isn't asked about isn't
        /// listed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Keyword {
            /// Any other word, a quoted one included.
            None,
            $($name,)*
        }

        const ALL: &[(&[u8], Keyword)] = &[$(($text, Keyword::$name)),*];
    };
}

/// Bytes of the longest word that is looked up; all keywords are shorter.
const LONGEST: usize = 16;
/// Places of the table: a power of two, some four times the keywords, so that most are where they belong.
const PLACES: usize = 1_024;

/// The keyword that an unquoted word is, whatever its case: the first `len` bytes of `text`.
///
/// Words are looked up as one number by an open hash table that is computed at compile time, since a
/// decision tree over a hundred words costs a mispredicted branch for most of them.
pub(crate) fn keyword(text: &[u8], len: usize) -> Keyword {
    if len >= LONGEST {
        return Keyword::None;
    }
    let word = match text.first_chunk::<LONGEST>() {
        Some(bytes) => u128::from_le_bytes(*bytes) & ((1 << (8 * len)) - 1),
        None => packed(text.get(..len).unwrap_or_default()),
    };
    let word = lowercase(word, len);
    let mut place = hash(word);
    loop {
        let (known, keyword) = TABLE[place];
        if known == word || known == 0 {
            return keyword;
        }
        place = (place + 1) % PLACES;
    }
}

const LOWER: u128 = u128::from_le_bytes([0x20; 16]);

/// Words consist of letters, digits, `_`, `$` and bytes above 127. This bit lowers the ASCII letters and
/// makes a letter of nothing else; `_` becomes DEL, which no word contains.
const fn lowercase(word: u128, len: usize) -> u128 {
    word | (LOWER & ((1 << (8 * len)) - 1))
}

/// Up to 16 bytes as a number, padded with zeros.
const fn packed(word: &[u8]) -> u128 {
    let mut number = 0;
    let mut at = word.len();
    while at > 0 {
        at -= 1;
        number = number << 8 | word[at] as u128;
    }
    number
}

const fn hash(word: u128) -> usize {
    // Multiplicative hashing of both halves; the upper bits are the well mixed ones.
    let folded = word as u64 ^ ((word >> 64) as u64).rotate_left(23);
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros())) as usize
}

/// Each keyword at its hash's place or the next free one; 0 marks a free place.
static TABLE: [(u128, Keyword); PLACES] = {
    let mut table = [(0, Keyword::None); PLACES];
    let mut at = 0;
    while at < ALL.len() {
        let (text, keyword) = ALL[at];
        assert!(text.len() < LONGEST);
        let word = lowercase(packed(text), text.len());
        let mut place = hash(word);
        while table[place].0 != 0 {
            place = (place + 1) % PLACES;
        }
        table[place] = (word, keyword);
        at += 1;
    }
    table
};

impl Keyword {
    /// Whether the server takes this word for a name only in quotes (`reserved` and `type_func_name` in its
    /// `kwlist.h`; `current_timestamp` alone is too long for the table and missing).
    pub(crate) fn is_reserved(self) -> bool {
        use Keyword as K;
        matches!(
            self,
            K::All
                | K::Analyze
                | K::And
                | K::Any
                | K::Array
                | K::As
                | K::Asc
                | K::Asymmetric
                | K::Authorization
                | K::Binary
                | K::Both
                | K::Case
                | K::Cast
                | K::Check
                | K::Collate
                | K::Collation
                | K::Column
                | K::Concurrently
                | K::Constraint
                | K::Create
                | K::Cross
                | K::CurrentCatalog
                | K::CurrentDate
                | K::CurrentRole
                | K::CurrentSchema
                | K::CurrentTime
                | K::CurrentUser
                | K::Default
                | K::Deferrable
                | K::Desc
                | K::Distinct
                | K::Do
                | K::Else
                | K::End
                | K::Except
                | K::False
                | K::Fetch
                | K::For
                | K::Foreign
                | K::Freeze
                | K::From
                | K::Full
                | K::Grant
                | K::Group
                | K::Having
                | K::Ilike
                | K::In
                | K::Initially
                | K::Inner
                | K::Intersect
                | K::Into
                | K::Is
                | K::Isnull
                | K::Join
                | K::Lateral
                | K::Leading
                | K::Left
                | K::Like
                | K::Limit
                | K::Localtime
                | K::Localtimestamp
                | K::Natural
                | K::Not
                | K::Notnull
                | K::Null
                | K::Offset
                | K::On
                | K::Only
                | K::Or
                | K::Order
                | K::Outer
                | K::Overlaps
                | K::Placing
                | K::Primary
                | K::References
                | K::Returning
                | K::Right
                | K::Select
                | K::SessionUser
                | K::Similar
                | K::Some
                | K::Symmetric
                | K::SystemUser
                | K::Table
                | K::Tablesample
                | K::Then
                | K::To
                | K::Trailing
                | K::True
                | K::Union
                | K::Unique
                | K::User
                | K::Using
                | K::Variadic
                | K::Verbose
                | K::When
                | K::Where
                | K::Window
                | K::With
        )
    }
}

keywords! {
    b"abort" Abort
    b"all" All
    b"alter" Alter
    b"analyze" Analyze
    b"and" And
    b"any" Any
    b"array" Array
    b"as" As
    b"asc" Asc
    b"asymmetric" Asymmetric
    b"atomic" Atomic
    b"authorization" Authorization
    b"begin" Begin
    b"between" Between
    b"binary" Binary
    b"both" Both
    b"by" By
    b"call" Call
    b"case" Case
    b"cast" Cast
    b"catalog" Catalog
    b"chain" Chain
    b"characteristics" Characteristics
    b"check" Check
    b"checkpoint" Checkpoint
    b"close" Close
    b"cluster" Cluster
    b"collate" Collate
    b"collation" Collation
    b"column" Column
    b"comment" Comment
    b"commit" Commit
    b"committed" Committed
    b"concurrently" Concurrently
    b"constraint" Constraint
    b"copy" Copy
    b"create" Create
    b"cross" Cross
    b"current" Current
    b"current_catalog" CurrentCatalog
    b"current_date" CurrentDate
    b"current_role" CurrentRole
    b"current_schema" CurrentSchema
    b"current_time" CurrentTime
    b"current_user" CurrentUser
    b"cursor" Cursor
    b"deallocate" Deallocate
    b"declare" Declare
    b"default" Default
    b"deferrable" Deferrable
    b"delete" Delete
    b"desc" Desc
    b"discard" Discard
    b"distinct" Distinct
    b"do" Do
    b"drop" Drop
    b"else" Else
    b"end" End
    b"except" Except
    b"execute" Execute
    b"exists" Exists
    b"explain" Explain
    b"false" False
    b"fetch" Fetch
    b"filter" Filter
    b"following" Following
    b"for" For
    b"foreign" Foreign
    b"freeze" Freeze
    b"from" From
    b"full" Full
    b"function" Function
    b"global" Global
    b"grant" Grant
    b"group" Group
    b"having" Having
    b"hold" Hold
    b"if" If
    b"ilike" Ilike
    b"import" Import
    b"in" In
    b"initially" Initially
    b"inner" Inner
    b"insert" Insert
    b"intersect" Intersect
    b"into" Into
    b"is" Is
    b"isnull" Isnull
    b"isolation" Isolation
    b"join" Join
    b"lateral" Lateral
    b"leading" Leading
    b"left" Left
    b"level" Level
    b"like" Like
    b"limit" Limit
    b"listen" Listen
    b"load" Load
    b"local" Local
    b"localtime" Localtime
    b"localtimestamp" Localtimestamp
    b"lock" Lock
    b"merge" Merge
    b"move" Move
    b"names" Names
    b"natural" Natural
    b"no" No
    b"none" NoneWord
    b"not" Not
    b"notify" Notify
    b"notnull" Notnull
    b"null" Null
    b"offset" Offset
    b"on" On
    b"only" Only
    b"option" Option
    b"or" Or
    b"order" Order
    b"outer" Outer
    b"over" Over
    b"overlaps" Overlaps
    b"partition" Partition
    b"placing" Placing
    b"plans" Plans
    b"prepare" Prepare
    b"prepared" Prepared
    b"primary" Primary
    b"procedure" Procedure
    b"program" Program
    b"read" Read
    b"reassign" Reassign
    b"references" References
    b"refresh" Refresh
    b"reindex" Reindex
    b"release" Release
    b"repeatable" Repeatable
    b"replace" Replace
    b"reset" Reset
    b"returning" Returning
    b"revoke" Revoke
    b"right" Right
    b"role" Role
    b"rollback" Rollback
    b"row" Row
    b"rows" Rows
    b"savepoint" Savepoint
    b"schema" Schema
    b"security" Security
    b"select" Select
    b"sequence" Sequence
    b"sequences" Sequences
    b"serializable" Serializable
    b"session" Session
    b"session_user" SessionUser
    b"set" Set
    b"share" Share
    b"show" Show
    b"similar" Similar
    b"snapshot" Snapshot
    b"some" Some
    b"start" Start
    b"stdin" Stdin
    b"stdout" Stdout
    b"symmetric" Symmetric
    b"system_user" SystemUser
    b"table" Table
    b"tablesample" Tablesample
    b"temp" Temp
    b"temporary" Temporary
    b"then" Then
    b"time" Time
    b"to" To
    b"trailing" Trailing
    b"transaction" Transaction
    b"true" True
    b"truncate" Truncate
    b"uncommitted" Uncommitted
    b"union" Union
    b"unique" Unique
    b"unlisten" Unlisten
    b"update" Update
    b"user" User
    b"using" Using
    b"vacuum" Vacuum
    b"values" Values
    b"variadic" Variadic
    b"verbose" Verbose
    b"view" View
    b"when" When
    b"where" Where
    b"window" Window
    b"with" With
    b"within" Within
    b"work" Work
    b"write" Write
    b"xml" Xml
    b"zone" Zone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(word: &[u8]) -> Keyword {
        keyword(word, word.len())
    }

    #[test]
    fn every_keyword_is_found_in_either_case_and_nothing_longer_or_shorter_is() {
        for (text, name) in ALL {
            assert_eq!(whole(text), *name);
            assert_eq!(whole(&text.to_ascii_uppercase()), *name);
            let followed = [text, &b" and so on and so on"[..]].concat();
            assert_eq!(keyword(&followed, text.len()), *name);
            for more in [&b"_"[..], b"$", b"0", b"\xe9"] {
                assert_eq!(whole(&[text, more].concat()), Keyword::None);
            }
        }
        assert_eq!(whole(b""), Keyword::None);
        assert_eq!(whole(&[b'a'; 40]), Keyword::None);
    }

    #[test]
    fn a_lookup_ends_after_a_few_places() {
        let longest = TABLE.split(|(word, _)| *word == 0).map(<[_]>::len).max();
        assert!(longest < Some(8) && TABLE[PLACES - 1].0 == 0, "{longest:?}");
    }
}
