package freq

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
)

// RecordKind is the kind of records of decisions.
const RecordKind = "rate-decision"

const recordVersion = 1

// Decided is a decision on the rate of a service, as it is recorded. Fields are only added.
type Decided struct {
	Task    string    `json:"task"`
	Service string    `json:"service"`
	Hertz   float64   `json:"hertz"`
	Policy  string    `json:"policy"`
	Reason  Reason    `json:"reason"`
	Why     string    `json:"why"`  // the reason in words, with what was measured
	From    time.Time `json:"from"` // of the interval by which it was decided, or confirmed; it holds from the end of that on
	To      time.Time `json:"to"`
}

// Recorded is from when on records say what was in force at a time: a decision is recorded
// again on each day (in UTC) that it still holds, since records are dropped by days.
func Recorded(at time.Time) time.Time { return at.UTC().Truncate(day).Add(-day) }

// NewDay reports whether a decision that was recorded before is to be recorded again.
func NewDay(recorded, now time.Time) bool {
	return recorded.UTC().Truncate(day).Before(now.UTC().Truncate(day))
}

const day = 24 * time.Hour

// Record encodes a decision. A policy that decides on the same interval again makes the same
// record.
func (d *Decided) Record() (profile.Record, error) {
	payload, err := json.Marshal(d)
	if err != nil {
		return profile.Record{}, fmt.Errorf("encode a decision on a rate: %w", err)
	}
	r := profile.Record{Series: profile.Labels{"service": d.Service}, Kind: RecordKind, Start: d.To, Encoding: profile.EncodingJSON, Version: recordVersion, Payload: payload}
	hash := sha256.Sum256([]byte(d.Task))
	copy(r.Run[:], hash[:]) // tells tasks apart that record the same service
	return r, nil
}

// DecidedOf decodes a record.
func DecidedOf(r *profile.Record) (d Decided, err error) {
	if r.Kind != RecordKind || r.Encoding != profile.EncodingJSON || r.Version != recordVersion {
		return d, fmt.Errorf("a record of kind %q in %q, version %d, is not a decision on a rate that this version can read", r.Kind, r.Encoding, r.Version)
	}
	if err := json.Unmarshal(r.Payload, &d); err != nil {
		return d, fmt.Errorf("decode a decision on a rate: %w", err)
	}
	return d, nil
}
