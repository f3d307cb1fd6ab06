package query

import (
	"slices"
	"testing"
	"time"

	"atys.dev/atys/internal/profile"
)

// TestServices lists what a split by service has, in the order of CPU time, and
// tells short-lived commands by what is known of their processes.
func TestServices(t *testing.T) {
	a := shop()
	s := a.Store.(*shelf)
	s.windows = append(s.windows, written{profile.Labels{"service": "mv", "node": "n"}, head(0), "", map[string]int64{"main": 1}},
		written{profile.Labels{"service": kernelService, "node": "n"}, head(0), "", map[string]int64{"main": 1}},
		written{profile.Labels{"service": "import", "node": "unwatched"}, head(0), "", map[string]int64{"main": 1}})
	services, coverage, err := a.Services(t.Context(), about(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	want := []Service{
		{Name: "shop", Windows: 3, N: 200, CPU: 300 * time.Second},
		{Name: "cart", Windows: 1, N: 5, CPU: 100 * time.Second}, // nobody knows what its node's machine says
		{Name: "import", Windows: 1, N: 1, CPU: 100 * time.Second},
		{Name: kernelService, Windows: 1, N: 1, CPU: 100 * time.Second},
		{Name: "mv", Windows: 1, N: 1, CPU: 100 * time.Second, Brief: true},
	}
	if !slices.Equal(services, want) {
		t.Errorf("got  %+v\nwant %+v", services, want)
	}
	_, split, err := a.Split(t.Context(), about(t, ""), Split{By: "service"})
	if err != nil {
		t.Fatal(err)
	}
	if coverage.N != split.N || coverage.Windows != split.Windows || coverage.CPU != split.CPU || !slices.Equal(coverage.Losses, split.Losses) || len(coverage.Nodes) != len(split.Nodes) {
		t.Errorf("covered is %+v, of a split %+v", coverage, split)
	}
}

// TestServicesWithoutMachines folds nothing where no machine tells what its
// processes have in common.
func TestServicesWithoutMachines(t *testing.T) {
	a := Asker{Tenant: "x", Now: func() time.Time { return noon }, Store: &shelf{windows: []written{{profile.Labels{"service": "mv", "node": "n"}, head(0), "", map[string]int64{"main": 1}}}}}
	services, _, err := a.Services(t.Context(), about(t, ""))
	if err != nil || len(services) != 1 || services[0].Brief {
		t.Errorf("%+v, %v", services, err)
	}
}
