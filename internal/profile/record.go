package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Record is a result that is not a set of stacks with values, such as a decision or a tree
// of variances. Series, Kind, Start, Run and Sequence identify it: a record that is sent
// twice is stored once.
type Record struct {
	Series   Labels
	Kind     string
	Start    time.Time     // by the server's clock, as far as its maker knows it
	Duration time.Duration // of the time that it describes; 0: a point in time
	Run      Run           // the life of the agent that made it
	Sequence uint64        // distinguishes records of one kind and run that start at one time
	Encoding string        // of the payload, such as EncodingJSON
	Version  uint32        // of what is encoded: readers skip versions that they do not know
	Payload  []byte
}

// MaxPayload is the largest payload of a record, in bytes.
const MaxPayload = 1 << 20

// maxRecordName is the longest kind or encoding, in bytes.
const maxRecordName = 256

// EncodingJSON is the encoding of payloads that are one JSON value.
const EncodingJSON = "json"

// Check rejects a record that cannot be identified, or whose parts are too large. It does
// not check labels.
func (r *Record) Check() error {
	first, last := time.Unix(0, 0), time.Unix(0, 1<<63-1)
	switch {
	case r.Kind == "":
		return errors.New("a record has no kind")
	case len(r.Kind) > maxRecordName || len(r.Encoding) > maxRecordName:
		return fmt.Errorf("a record of kind %.40q in encoding %.40q: at most %d bytes are allowed for each", r.Kind, r.Encoding, maxRecordName)
	case len(r.Payload) > MaxPayload:
		return fmt.Errorf("a record of kind %q has a payload of %d bytes: at most %d are allowed", r.Kind, len(r.Payload), MaxPayload)
	case r.Start.Before(first) || r.Start.After(last) || r.Duration < 0 || r.Duration > last.Sub(r.Start):
		return fmt.Errorf("a record of kind %q starts at %v and lasts %v", r.Kind, r.Start, r.Duration)
	}
	return nil
}

// Clone returns a copy that shares nothing with the record.
func (r *Record) Clone() *Record {
	c := *r
	c.Series, c.Payload = maps.Clone(r.Series), slices.Clone(r.Payload)
	return &c
}
