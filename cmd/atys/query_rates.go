package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

func queryRatesCommand() *cobra.Command {
	var f queryFlags
	var all bool
	c := &cobra.Command{
		Use:   "rates [SELECTOR]",
		Short: "How often services were sampled, and why: where that moved",
		Long: `rates lists how often each service was sampled by each profile, and, where a policy
chooses that, its reason, in a word and with what it measured. A row is from one move
of the rate or its reason to the next; --all has one for each window. Where instances
differ, since one is over its budget or has not heard of its server, HZ has the rate of
most of them, and the lowest and the highest.`,
		Example: `  atys query rates '{service="checkout"}' --from -1h
  atys query rates '{service="checkout"}' --from -10m --all -o csv`,
		Args: oneSelector,
		RunE: func(c *cobra.Command, args []string) error {
			client, address, about, err := f.ask(args)
			if err != nil {
				return err
			}
			response, err := client.Rates(c.Context(), &atysv1.RatesRequest{Selection: about, All: all})
			if err != nil {
				return explain(address, err)
			}
			if err := f.print(response, rateRows(response)); err != nil {
				return err
			}
			return warnCoverage(os.Stderr, response.GetCoverage(), about)
		},
	}
	f.addTable(c)
	c.Flags().BoolVar(&all, "all", false, "a row for each window")
	return c
}

func rateRows(r *atysv1.RatesResponse) [][]string {
	rows := [][]string{{"START", "LASTS", "SERVICE", "PROFILE", "HZ", "SAMPLES", "WINDOWS", "INSTANCES", "REASON", "WHY"}}
	for _, d := range r.GetDecided() {
		rows = append(rows, []string{time.Unix(0, d.GetStartUnixNano()).UTC().Format(time.RFC3339), time.Duration(d.GetDurationNs()).Round(time.Millisecond).String(),
			d.GetService(), d.GetTask(), rateCell(d), strconv.FormatInt(d.GetN(), 10), strconv.Itoa(int(d.GetWindows())), strconv.Itoa(int(d.GetInstances())),
			reasonCell(d.GetRate()), cmp.Or(d.GetRate().GetWhy(), "-")})
	}
	return rows
}

// rateCell is the rate of most instances, and between which those of all lie.
func rateCell(d *atysv1.Decided) string {
	cell := inHertz(d.GetRate().GetHertz())
	if lowest, highest := inHertz(d.GetLowestHertz()), inHertz(d.GetHighestHertz()); lowest != highest {
		cell += " (" + lowest + " to " + highest + ")"
	}
	return cell
}

func inHertz(hertz float64) string { return strconv.FormatFloat(hertz, 'g', 4, 64) }

// reasonCell is why a rate is what it is, and who decided it, if not the server; "-"
// where no policy chose it.
func reasonCell(r *atysv1.Rate) string {
	switch by := r.GetBy(); {
	case by == "" || by == profile.ByServer:
		return cmp.Or(r.GetReason(), "-")
	case r.GetReason() == "":
		return "by the " + by
	default:
		return fmt.Sprintf("%s, by the %s", r.GetReason(), by)
	}
}
