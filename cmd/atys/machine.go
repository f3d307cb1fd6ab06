package main

import (
	"atys.dev/atys/internal/agent"
	"atys.dev/atys/internal/recorder"
)

// recordOn has an agent record on this machine.
func recordOn(m *recorder.Machine) agent.Record {
	return func(w agent.Wanted) (agent.Recording, error) {
		return m.Start(recorder.Options{Targets: recorder.Targets{All: w.All}, Event: w.Event, Frequency: w.Frequency,
			Threads: true, MayAsk: w.MayAttach, MeasureCost: true})
	}
}
