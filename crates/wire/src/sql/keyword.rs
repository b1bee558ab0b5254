//! The words that the readers of this module tell apart; all others are [`Keyword::None`].

/// Declares the enum and its lookup from one list.
macro_rules! keywords {
    ($($text:literal $name:ident)*) => {
        /// A word that means something here. PostgreSQL's own list is longer; what isn't asked about isn't listed.
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
/// Words are looked up as one number by an open hash table that is computed at compile time, since a decision tree
/// over a hundred words costs a mispredicted branch for most of them.
pub(crate) fn keyword(text: &[u8], len: usize) -> Keyword {
    if len >= LONGEST {
        return Keyword::None;
    }
    let word = match text.first_chunk::<LONGEST>() {
        Some(bytes) => u128::from_le_bytes(*bytes) & ((1 << (8 * len)) - 1),
        None => packed(text.get(..len).unwrap_or_default()),
    };
    // Words consist of letters, digits, `_`, `$` and bytes above 127. This bit lowers the ASCII letters and makes
    // a letter of nothing else.
    let word = word | (LOWER & ((1 << (8 * len)) - 1));
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
        let word = packed(text);
        let mut place = hash(word);
        while table[place].0 != 0 {
            place = (place + 1) % PLACES;
        }
        table[place] = (word, keyword);
        at += 1;
    }
    table
};

keywords! {
    b"abort" Abort
    b"all" All
    b"alter" Alter
    b"analyze" Analyze
    b"and" And
    b"any" Any
    b"array" Array
    b"as" As
    b"atomic" Atomic
    b"authorization" Authorization
    b"begin" Begin
    b"between" Between
    b"by" By
    b"call" Call
    b"case" Case
    b"catalog" Catalog
    b"chain" Chain
    b"characteristics" Characteristics
    b"checkpoint" Checkpoint
    b"close" Close
    b"cluster" Cluster
    b"comment" Comment
    b"commit" Commit
    b"committed" Committed
    b"copy" Copy
    b"create" Create
    b"current" Current
    b"cursor" Cursor
    b"deallocate" Deallocate
    b"declare" Declare
    b"default" Default
    b"deferrable" Deferrable
    b"delete" Delete
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
    b"from" From
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
    b"insert" Insert
    b"intersect" Intersect
    b"into" Into
    b"is" Is
    b"isolation" Isolation
    b"join" Join
    b"lateral" Lateral
    b"level" Level
    b"like" Like
    b"limit" Limit
    b"listen" Listen
    b"load" Load
    b"local" Local
    b"lock" Lock
    b"merge" Merge
    b"move" Move
    b"names" Names
    b"no" No
    b"none" NoneWord
    b"not" Not
    b"notify" Notify
    b"null" Null
    b"offset" Offset
    b"on" On
    b"only" Only
    b"option" Option
    b"or" Or
    b"order" Order
    b"over" Over
    b"partition" Partition
    b"plans" Plans
    b"prepare" Prepare
    b"prepared" Prepared
    b"procedure" Procedure
    b"program" Program
    b"read" Read
    b"reassign" Reassign
    b"refresh" Refresh
    b"reindex" Reindex
    b"release" Release
    b"repeatable" Repeatable
    b"replace" Replace
    b"reset" Reset
    b"returning" Returning
    b"revoke" Revoke
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
    b"set" Set
    b"share" Share
    b"show" Show
    b"snapshot" Snapshot
    b"some" Some
    b"start" Start
    b"stdin" Stdin
    b"stdout" Stdout
    b"table" Table
    b"temp" Temp
    b"temporary" Temporary
    b"then" Then
    b"time" Time
    b"to" To
    b"transaction" Transaction
    b"true" True
    b"truncate" Truncate
    b"uncommitted" Uncommitted
    b"union" Union
    b"unlisten" Unlisten
    b"update" Update
    b"using" Using
    b"vacuum" Vacuum
    b"values" Values
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
