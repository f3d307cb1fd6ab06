package unwind

import (
	"os"

	"atys.dev/atys/internal/binfile"
	"atys.dev/atys/internal/lang"
)

// written is the state that a file was left in when it was written to last.
type written struct{ at, size int64 }

func lastWritten(info os.FileInfo) written {
	return written{info.ModTime().UnixNano(), info.Size()}
}

// currentNotes are what is known of the runtimes in a file, and are forgotten
// with it: nothing yet where it was written to since.
func (e *executable) currentNotes() *lang.Notes {
	info, err := e.handle.Stat()
	if err != nil {
		return nil
	}
	if now := lastWritten(info); e.notes == nil || now != e.written {
		e.notes, e.written = &lang.Notes{}, now
	}
	return e.notes
}

// shareNotes has copies of one file noted once. That they are copies, only a
// build-id proves.
func (e *executable) shareNotes(other *executable) {
	if !binfile.IsSubstitute(e.buildID) && other.notes != nil {
		e.notes = other.notes
	}
}
