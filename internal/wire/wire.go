// Package wire is what agents, relays and servers send each other, and what waits in a spool.
//
//	a Window -> Seal -> Spooled, whole by itself (seal.go)
//	   -> Batch -> a PushRequest: many windows under one table of hashes (batch.go)
//	   -> Learn -> a Forest, checked and hashed (learn.go)
//	a Record -> SealRecord -> Spooled -> AddRecord -> a PushRequest -> Records (record.go)
//	a Grove -> SealGrove -> Spooled, of what was added up (grove.go)
//	Spooled -> Open -> the Window again (open.go)
//	bytes of strangers -> Binary, JSON: few enough parts? -> a message (codec.go)
//
// The messages are drawn in atysv1/atys.proto. Nothing that comes in is believed:
// numbers are checked before they index, and hashes are worked out, not read.
package wire

import (
	"errors"
	"fmt"

	"atys.dev/atys/internal/profile"
)

// Protocol is which messages this program knows. It goes up whenever something is
// added without which an older peer would do the wrong thing; fields and requests
// that can be missing do not count, and what there was is never changed.
const Protocol = 1

// ErrMalformed says that a message contradicts itself. Sent again, it will again.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// hashSize is the length of a hash in a table.
const hashSize = len(profile.Hash{})

// Hashes reads a table of hashes.
func Hashes(table []byte) ([]profile.Hash, error) {
	if len(table)%hashSize != 0 {
		return nil, malformed("a table of hashes has %d bytes", len(table))
	}
	hashes := make([]profile.Hash, len(table)/hashSize)
	for i := range hashes {
		copy(hashes[i][:], table[i*hashSize:])
	}
	return hashes, nil
}

// Table writes a table of hashes.
func Table(hashes []profile.Hash) []byte {
	table := make([]byte, 0, len(hashes)*hashSize)
	for _, h := range hashes {
		table = append(table, h[:]...)
	}
	return table
}
