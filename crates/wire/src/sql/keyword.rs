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

        /// The compiler turns this into decisions by length and bytes.
        fn of_lowercase(word: &[u8]) -> Keyword {
            match word {
                $($text => Keyword::$name,)*
                _ => Keyword::None,
            }
        }

        #[cfg(test)]
        const ALL: &[(&[u8], Keyword)] = &[$(($text, Keyword::$name)),*];
    };
}

/// Bytes of the longest word in the list.
const LONGEST: usize = 15;

/// The keyword that an unquoted word is, whatever its case.
pub(crate) fn keyword(word: &[u8]) -> Keyword {
    let mut lowercase = [0_u8; LONGEST];
    let Some(lowercase) = lowercase.get_mut(..word.len()) else { return Keyword::None };
    for (lower, byte) in lowercase.iter_mut().zip(word) {
        *lower = byte.to_ascii_lowercase();
    }
    of_lowercase(lowercase)
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

    #[test]
    fn every_keyword_is_found_in_either_case_and_nothing_longer_is() {
        for (text, name) in ALL {
            assert_eq!(keyword(text), *name);
            assert_eq!(keyword(&text.to_ascii_uppercase()), *name);
            assert_eq!(keyword(&[text, &b"_"[..]].concat()), Keyword::None);
            assert!(text.len() <= LONGEST);
        }
        assert!(ALL.iter().any(|(text, _)| text.len() == LONGEST));
    }
}
