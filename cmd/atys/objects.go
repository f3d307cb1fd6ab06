package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/remote"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/wire/atysv1"
	"atys.dev/atys/internal/wire/atysv1/atysv1connect"
)

// objectFlags say which server is asked, and how objects are shown.
type objectFlags struct {
	clientFlags
	displayFlags
	output string
}

func (f *objectFlags) control() (atysv1connect.ControlClient, string, error) {
	client, address, err := f.client()
	if err != nil {
		return nil, "", err
	}
	return atysv1connect.NewControlClient(client, address), address, nil
}

// outputs are the values of -o for lists; none is a table. One object is shown
// whole, in what documents are written in.
var (
	outputs   = []string{"wide", "json", "yaml"}
	documents = []string{"yaml", "json"}
)

func (f *objectFlags) addOutput(c *cobra.Command, outputs []string, otherwise string) {
	c.Flags().StringVarP(&f.output, "output", "o", "", "how to print: "+strings.Join(outputs, ", ")+"; else "+otherwise)
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

func (f *objectFlags) checkOutput(outputs []string) error {
	if f.output != "" && !slices.Contains(outputs, f.output) {
		return &usageError{fmt.Errorf("-o %q: want %s", f.output, strings.Join(outputs, ", "))}
	}
	return nil
}

// objectKinds are what can be asked for, and what else each is called.
var objectKinds = map[string]string{
	"profiles": "profiles", "profile": "profiles",
	"agents": "agents", "agent": "agents",
	"targets": "targets", "target": "targets",
	"relays": "relays", "relay": "relays",
}

// kindAndName reads what is asked for.
func kindAndName(args []string, least, most int) (kind, name string, err error) {
	if len(args) < least || len(args) > most {
		return "", "", &usageError{errors.New("missing kind or name: use profiles, agents, targets or relays, then a name")}
	}
	kind = objectKinds[args[0]]
	if kind == "" {
		return "", "", &usageError{fmt.Errorf("%q: there are profiles, agents, targets and relays", args[0])}
	}
	if len(args) == 2 {
		name = args[1]
	}
	return kind, name, nil
}

func objectCommands() []*cobra.Command {
	return []*cobra.Command{applyCommand(), getCommand(), describeCommand(), deleteCommand(), watchCommand()}
}

func applyCommand() *cobra.Command {
	var f objectFlags
	var files []string
	c := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Have a server's agents record what a file of profiles says",
		Example: `  atys apply -f checkout.yaml
  kubectl get cm profiles -o jsonpath='{.data.all}' | atys apply -f -`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return &usageError{errors.New("-f: name a file of profiles, or - for standard input")}
			}
			return apply(c, f, files)
		},
	}
	f.clientFlags.add(c)
	c.Flags().StringArrayVarP(&files, "filename", "f", nil, "file of profiles in YAML or JSON, - for standard input; may be given again")
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	return c
}

func apply(c *cobra.Command, f objectFlags, files []string) error {
	request := &atysv1.ApplyRequest{}
	for _, name := range files {
		profiles, err := readProfiles(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, p := range profiles {
			text, err := json.Marshal(p)
			if err != nil {
				return err
			}
			request.Objects = append(request.Objects, string(text))
		}
	}
	control, address, err := f.control()
	if err != nil {
		return err
	}
	response, err := control.Apply(c.Context(), request)
	if err != nil {
		return explain(address, err)
	}
	for _, o := range response.GetObjects() {
		fmt.Fprintf(os.Stdout, "profile %s applied\n", render.Printable(o.GetName()))
	}
	return nil
}

func readProfiles(name string) ([]*spec.Profile, error) {
	if name == "-" {
		return spec.Parse(os.Stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer file.Close()
	return spec.Parse(file)
}

func getCommand() *cobra.Command {
	var f objectFlags
	c := &cobra.Command{
		Use:   "get profiles|agents|targets|relays [NAME]",
		Short: "List what a server knows",
		Example: `  atys get agents
  atys get profile checkout-cpu -o yaml`,
		ValidArgs: []string{"profiles", "agents", "targets", "relays"},
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args, 1, 2)
			if err != nil {
				return err
			}
			return get(c, f, kind, name)
		},
	}
	f.clientFlags.add(c)
	f.displayFlags.add(c)
	f.addOutput(c, outputs, "as a table")
	return c
}

func get(c *cobra.Command, f objectFlags, kind, name string) error {
	if err := f.checkOutput(outputs); err != nil {
		return err
	}
	objects, err := f.list(c, kind, name)
	if err != nil {
		return err
	}
	switch f.output {
	case "json", "yaml":
		return writeObjects(os.Stdout, f.output, objects)
	}
	o, err := f.tableOptions()
	if err != nil {
		return err
	}
	rows := [][]string{objectHead(kind, f.output == "wide")}
	for _, object := range objects {
		row, err := objectRow(object, f.output == "wide", time.Now())
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return writeRows(os.Stdout, rows, o)
}

func (f *objectFlags) list(c *cobra.Command, kind, name string) ([]*atysv1.Object, error) {
	control, address, err := f.control()
	if err != nil {
		return nil, err
	}
	response, err := control.Get(c.Context(), &atysv1.GetRequest{Kind: kind, Name: name})
	if err != nil {
		return nil, explain(address, err)
	}
	return response.GetObjects(), nil
}

// writeObjects prints objects for programs: a list in JSON, or documents in YAML.
func writeObjects(w io.Writer, format string, objects []*atysv1.Object) error {
	all := make([]json.RawMessage, 0, len(objects))
	for _, o := range objects {
		all = append(all, json.RawMessage(o.GetJson()))
	}
	if format == "json" {
		return printJSON(w, all)
	}
	for i, one := range all {
		text, err := yaml.JSONToYAML(one)
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(harmless(text)); err != nil {
			return err
		}
	}
	return nil
}

func objectHead(kind string, wide bool) []string {
	var head []string
	switch kind {
	case "profiles":
		if head = []string{"NAME", "SELECT", "HZ", "PHASE", "NODES", "LEFT"}; wide {
			head = append(head, "EVENTS", "WINDOW", "THREADS", "INSTANCES", "AGE", "RATES")
		}
	case "agents":
		if head = []string{"NODE", "PHASE", "TARGETS", "SHIPPED", "WAITING", "LOST", "COST", "CAP"}; wide {
			head = append(head, "BUDGET", "CPU", "MEMORY", "CLOCK", "VERSION", "AGE", "SHIPS TO", "LABELS")
		}
	case "targets":
		if head = []string{"SERVICE", "NODE", "LANGUAGE", "PROCESSES"}; wide {
			head = append(head, "LABELS")
		}
	case "relays":
		if head = []string{"NAME", "GROUP", "PHASE", "AGENTS", "ADDRESS"}; wide {
			head = append(head, "VERSION", "AGE", "LABELS")
		}
	}
	return head
}

// objectRow shows an object as its kind's head says.
func objectRow(o *atysv1.Object, wide bool, now time.Time) ([]string, error) {
	switch s := o.GetStatus().(type) {
	case *atysv1.Object_Profile:
		return profileRow(s.Profile, wide, now)
	case *atysv1.Object_Agent:
		return agentRow(s.Agent, wide, now), nil
	case *atysv1.Object_Target:
		return targetRow(s.Target, wide), nil
	case *atysv1.Object_Relay:
		return relayRow(s.Relay, wide, now), nil
	}
	return nil, remote.ErrNoStatus
}

func agentRow(a *atysv1.AgentStatus, wide bool, now time.Time) []string {
	s := a.GetState()
	phase := a.GetPhase()
	if a.GetMessage() != "" {
		phase += ", see describe"
	}
	for _, c := range s.GetConditions() {
		phase += ", " + c.GetKind()
	}
	row := []string{a.GetNode(), phase, fmt.Sprint(a.GetTargets()), fmt.Sprint(s.GetShippedWindows()), fmt.Sprint(s.GetWaitingWindows()), fmt.Sprint(s.GetLostWindows())}
	cost, limit, budget := costCells(s)
	row = append(row, cost, limit)
	if wide {
		row = append(row, budget, time.Duration(s.GetCpuNs()).String(), fmt.Sprint(s.GetMemoryBytes()>>20)+" MB", clockCell(s), a.GetVersion(), agentAge(now, s),
			cmp.Or(a.GetShipsTo(), "-"), profile.Labels(a.GetLabels()).String())
	}
	return row
}

// clockCell is by how much an agent's clock is ahead.
func clockCell(s *atysv1.NodeState) string {
	within := time.Duration(s.GetClockErrorNs())
	if within == profile.ClockUnknown {
		return "unknown"
	}
	return time.Duration(s.GetClockOffsetNs()).String() + " ±" + within.String()
}

// costCells are what an agent takes of a core, the rate above which it samples
// nothing, and its budget.
func costCells(s *atysv1.NodeState) (cost, limit, budget string) {
	cost, limit, budget = "-", "-", "-"
	if s.GetCost() == nil {
		return
	}
	if s.GetCores() > 0 {
		cost = percent(s.GetCores())
	}
	if s.GetCapHertz() > 0 {
		limit = strconv.FormatFloat(s.GetCapHertz(), 'g', 3, 64) + " Hz"
	}
	var parts []string
	if s.GetCoresBudget() > 0 {
		parts = append(parts, strconv.FormatFloat(100*s.GetCoresBudget(), 'g', 3, 64)+"%")
	}
	if s.GetMemoryBudget() > 0 {
		parts = append(parts, fmt.Sprintf("%.0f MB", float64(s.GetMemoryBudget())/1e6))
	}
	if len(parts) > 0 {
		budget = strings.Join(parts, ", ")
	}
	return
}

func targetRow(t *atysv1.Target, wide bool) []string {
	labels := profile.Labels(t.GetLabels())
	row := []string{labels["service"], labels["node"], cmp.Or(labels["language"], "-"), fmt.Sprint(t.GetProcesses())}
	if wide {
		row = append(row, labels.String())
	}
	return row
}

func relayRow(r *atysv1.RelayStatus, wide bool, now time.Time) []string {
	phase := "standing by"
	if r.GetCentral() {
		phase = "central"
	}
	o := r.GetOffer()
	row := []string{o.GetName(), cmp.Or(r.GetGroup(), "-"), phase, fmt.Sprint(r.GetAgents()), o.GetAddress()}
	if wide {
		row = append(row, o.GetVersion(), age(now, r.GetSinceUnixNano()), profile.Labels(o.GetLabels()).String())
	}
	return row
}

func profileRow(p *atysv1.ProfileStatus, wide bool, now time.Time) ([]string, error) {
	s, _, err := spec.ParseKept([]byte(p.GetProfile()))
	if err != nil {
		return nil, fmt.Errorf("read a profile: %w", err)
	}
	left := "-"
	if until := p.GetUntilUnixNano(); until != 0 {
		left = max(time.Unix(0, until).Sub(now), 0).Round(time.Second).String()
	}
	running := 0
	for _, n := range p.GetNodes() {
		if n.GetState().GetTargets() > 0 || s.All() && n.GetState().GetPhase() == "running" {
			running++
		}
	}
	row := []string{s.Name, cmp.Or(s.Select.String(), "{}"), s.Rates(), p.GetPhase(), fmt.Sprintf("%d/%d", running, len(p.GetNodes())), left}
	if wide {
		instances := "all"
		if i := p.GetInstances(); i != nil {
			instances = fmt.Sprintf("%d of %d", i.GetRecorded(), i.GetEligible())
		}
		row = append(row, strings.Join(append(slices.Clone(s.Kinds), s.Events...), ","), s.Window.String(), string(s.Threads), instances, age(now, p.GetCreatedUnixNano()), ratesCell(p.GetRates()))
	}
	return row, nil
}

// mostRates are those that a cell has room for.
const mostRates = 3

// ratesCell lists the rates that a policy has decided, the highest first.
func ratesCell(rates []*atysv1.ServiceRate) string {
	rates = slices.Clone(rates)
	slices.SortStableFunc(rates, func(a, b *atysv1.ServiceRate) int {
		return cmp.Compare(b.GetRate().GetHertz(), a.GetRate().GetHertz())
	})
	var parts []string
	for _, r := range rates[:min(len(rates), mostRates)] {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", r.GetService(), inHertz(r.GetRate().GetHertz()), r.GetRate().GetReason()))
	}
	if more := len(rates) - mostRates; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// age is how long ago a time was; 0 is none.
func age(now time.Time, unixNano int64) string {
	if unixNano == 0 {
		return "-"
	}
	return max(now.Sub(time.Unix(0, unixNano)), 0).Round(time.Second).String()
}

// agentAge is the age of an agent, which reports when it started by its own clock.
func agentAge(now time.Time, s *atysv1.NodeState) string {
	if s.GetStartedUnixNano() == 0 || time.Duration(s.GetClockErrorNs()) == profile.ClockUnknown {
		return age(now, s.GetStartedUnixNano())
	}
	return age(now, s.GetStartedUnixNano()-s.GetClockOffsetNs())
}

func describeCommand() *cobra.Command {
	var f objectFlags
	c := &cobra.Command{
		Use:   "describe profile|agent|target|relay NAME",
		Short: "Show all that a server knows of one thing",
		Long: `describe shows all that a server knows of one thing. Targets are named by their
service, or by a selector such as '{service="checkout",node="edge-1"}': all that
match are shown.`,
		Example: `  atys describe profile checkout-cpu
  atys describe target checkout`,
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args, 2, 2)
			if err = cmp.Or(err, f.checkOutput(documents)); err != nil {
				return err
			}
			objects, err := f.list(c, kind, name)
			if err != nil {
				return err
			}
			return writeObjects(os.Stdout, cmp.Or(f.output, "yaml"), objects)
		},
	}
	f.clientFlags.add(c)
	f.addOutput(c, documents, "as yaml")
	return c
}

func deleteCommand() *cobra.Command {
	var f objectFlags
	c := &cobra.Command{
		Use:     "delete profile NAME",
		Short:   "End a profile on all agents; what it recorded is kept",
		Example: `  atys delete profile checkout-cpu`,
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := kindAndName(args, 2, 2)
			if err != nil {
				return err
			}
			control, address, err := f.control()
			if err != nil {
				return err
			}
			if _, err := control.Delete(c.Context(), &atysv1.DeleteRequest{Kind: kind, Name: name}); err != nil {
				return explain(address, err)
			}
			fmt.Fprintf(os.Stdout, "profile %s deleted\n", render.Printable(name))
			return nil
		},
	}
	f.clientFlags.add(c)
	return c
}
