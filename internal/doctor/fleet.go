package doctor

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// ServerFacts are what a server says of itself and its fleet, and what there is
// to say where it does not. Each error is of what is asked beside it.
type ServerFacts struct {
	Address string // such as http://127.0.0.1:4300
	Local   bool   // on this machine
	Now     time.Time

	Health      Health
	HealthErr   error
	Status      *atysv1.StatusResponse
	StatusErr   error
	Offset      time.Duration // by which our clock is ahead of the server's
	Uncertain   time.Duration // by how much that may be wrong
	Agents      []AgentFacts
	AgentsErr   error
	Relays      []RelayFacts
	RelaysErr   error
	Coverage    *atysv1.Coverage // of the last hour
	CoverageErr error
}

// Health is how the server answers at all.
type Health struct {
	Code   int
	Body   string
	Took   time.Duration
	Expiry time.Time // of its certificate; zero: there is none
}

// AgentFacts are of an agent, as "atys get agents -o json" shows it.
type AgentFacts struct {
	Node        string            `json:"node"`
	Version     string            `json:"version"`
	Phase       string            `json:"phase"`
	Seen        time.Time         `json:"seen"`
	Targets     int               `json:"targets"`
	Waiting     int               `json:"waitingWindows"`
	Shipped     int               `json:"shippedWindows"`
	Lost        int               `json:"lostWindows"`
	ClockOffset string            `json:"clockOffset"`
	Labels      map[string]string `json:"labels"`
	ShipsTo     string            `json:"shipsTo"`
	Conditions  []Condition       `json:"conditions"`
	Cost        *AgentCost        `json:"cost"` // nil: it does not say
}

// Condition is a trouble that an agent reports of itself.
type Condition struct {
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"`
	Fix     string    `json:"fix"`
}

// AgentCost is what an agent takes of its machine, and what it does to stay within
// its budget.
type AgentCost struct {
	Cores       float64         `json:"cores"`
	CoresBudget float64         `json:"coresBudget"`
	Message     string          `json:"message"`
	Over        bool            `json:"overBudget"`
	Causes      []AgentCause    `json:"causes"`
	Decisions   []AgentDecision `json:"decisions"`
}

// AgentCause is what an agent spends on one cause, of a core.
type AgentCause struct {
	Cause string  `json:"cause"`
	Cores float64 `json:"cores"`
}

// AgentDecision is one step to stay within the budget.
type AgentDecision struct {
	At      time.Time `json:"at"`
	Knob    string    `json:"knob"`
	Why     string    `json:"why"`
	Relaxes bool      `json:"relaxes"`
}

// RelayFacts are of a relay, as "atys get relays -o json" shows it.
type RelayFacts struct {
	Name    string `json:"name"`
	Group   string `json:"group"`
	Central bool   `json:"central"`
	Agents  int    `json:"agents"`
	Address string `json:"address"`
	Version string `json:"version"`
}

// patience is how long a server may take for one answer.
const patience = 15 * time.Second

// GatherServer asks a server at an address without a slash at its end. What could
// not be asked because of what failed before has its error.
func GatherServer(ctx context.Context, client *http.Client, address string, local bool) ServerFacts {
	f := ServerFacts{Address: address, Local: local, Now: time.Now()}
	if f.Health, f.HealthErr = askHealth(ctx, client, address); f.HealthErr != nil {
		f.StatusErr, f.AgentsErr, f.RelaysErr, f.CoverageErr = f.HealthErr, f.HealthErr, f.HealthErr, f.HealthErr
		return f
	}
	control := atysv1connect.NewControlClient(client, address)
	f.askStatus(ctx, control)
	f.AgentsErr = objects(ctx, control, "agents", &f.Agents)
	f.RelaysErr = objects(ctx, control, "relays", &f.Relays)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now := time.Now().Add(-f.Offset)
	answer, err := atysv1connect.NewQueryClient(client, address).Split(ctx, &atysv1.SplitRequest{
		Selection: &atysv1.Selection{Kind: "cpu", FromUnixNano: now.Add(-time.Hour).UnixNano(), ToUnixNano: now.UnixNano()}})
	f.Coverage, f.CoverageErr = answer.GetCoverage(), err
	return f
}

// askHealth asks what anybody may.
func askHealth(ctx context.Context, client *http.Client, address string) (h Health, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", nil)
	if err != nil {
		return h, err
	}
	began := time.Now()
	answer, err := client.Do(request)
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	h.Code, h.Took = answer.StatusCode, time.Since(began)
	if answer.TLS != nil && len(answer.TLS.PeerCertificates) > 0 {
		h.Expiry = answer.TLS.PeerCertificates[0].NotAfter
	}
	const most = 200
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	h.Body = strings.TrimSpace(string(body))
	return h, err
}

// askStatus also reads the server's clock: the second time, when the way is known
// and nothing has to be set up for it.
func (f *ServerFacts) askStatus(ctx context.Context, control atysv1connect.ControlClient) {
	for range 2 {
		ctx, cancel := context.WithTimeout(ctx, patience)
		sent := time.Now()
		f.Status, f.StatusErr = control.Status(ctx, &atysv1.StatusRequest{})
		cancel()
		if f.StatusErr != nil {
			return
		}
		f.Offset, f.Uncertain = wire.Clock(sent, time.Now(), &atysv1.PushResponse{ReceivedUnixNano: f.Status.GetReceivedUnixNano(), AnsweredUnixNano: f.Status.GetAnsweredUnixNano()})
	}
}

// objects lists those of a kind.
func objects[T any](ctx context.Context, control atysv1connect.ControlClient, kind string, to *[]T) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := control.Get(ctx, &atysv1.GetRequest{Kind: kind})
	if err != nil {
		return err
	}
	for _, o := range answer.GetObjects() {
		var one T
		if err := json.Unmarshal([]byte(o.GetJson()), &one); err != nil {
			return err
		}
		*to = append(*to, one)
	}
	return nil
}
