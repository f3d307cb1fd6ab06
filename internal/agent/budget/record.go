package budget

import (
	"encoding/json"
	"fmt"
	"time"

	"atys.dev/atys/internal/profile"
)

// RecordKind is the kind of records of decisions.
const RecordKind = "budget-decision"

const recordVersion = 1

// recorded is a decision in a record's payload. Fields are only added.
type recorded struct {
	At      time.Time `json:"at"` // by the agent's clock
	Cause   string    `json:"cause"`
	Knob    Knob      `json:"knob"`
	From    float64   `json:"from"` // 0: no limit
	To      float64   `json:"to"`
	Why     string    `json:"why"`
	Relaxes bool      `json:"relaxes"`
}

// Record encodes a decision of an agent. The run and the sequence identify it.
func (d *Decision) Record(series profile.Labels, run profile.Run, sequence uint64) (profile.Record, error) {
	payload, err := json.Marshal(recorded{At: d.At.UTC(), Cause: d.Cause, Knob: d.Knob, From: d.From, To: d.To, Why: d.Why, Relaxes: d.Relaxes()})
	if err != nil {
		return profile.Record{}, fmt.Errorf("encode a decision on the budget: %w", err)
	}
	return profile.Record{Series: series, Kind: RecordKind, Start: d.At, Run: run, Sequence: sequence, Encoding: profile.EncodingJSON, Version: recordVersion, Payload: payload}, nil
}

// DecisionOf decodes a record.
func DecisionOf(r *profile.Record) (Decision, error) {
	if r.Kind != RecordKind || r.Encoding != profile.EncodingJSON || r.Version != recordVersion {
		return Decision{}, fmt.Errorf("a record of kind %q in %q, version %d, is not a decision on a budget that this version can read", r.Kind, r.Encoding, r.Version)
	}
	var d recorded
	if err := json.Unmarshal(r.Payload, &d); err != nil {
		return Decision{}, fmt.Errorf("decode a decision on the budget: %w", err)
	}
	return Decision{At: d.At, Cause: d.Cause, Knob: d.Knob, From: d.From, To: d.To, Why: d.Why}, nil
}
