package simulation

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
)

// testRepetitions are fewer than the paper's, of which the tests need no more.
func testRepetitions() int {
	if testing.Short() {
		return 50
	}
	return 200
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// No setting is biased: means are within 4 standard errors of the real shares.
// Over states drawn anew the variance is the model's, within its chi-squared
// interval; of a single state it is its own, of which the model is the mean.
func TestProfilesAreAsTheModelSays(t *testing.T) {
	r := run(t, Options{Seed: 1, Repetitions: testRepetitions()})
	low, high := chiSquared(r.Repetitions-1, -4), chiSquared(r.Repetitions-1, 4)
	checked := 0
	for _, row := range r.Rows {
		if off := math.Abs(row.Mean - row.Real); off > 4*row.StandardError+1e-12 {
			t.Errorf("%s, %s, task %d: mean %v of %v, standard error %v", row.Place, row.Design, row.Task, row.Mean, row.Real, row.StandardError)
		}
		if row.Design != NewStates {
			continue
		}
		checked++
		if v := row.Variance; v < low*row.ModelVariance-1e-20 || v > high*row.ModelVariance+1e-20 {
			t.Errorf("%s, share %v, g %d, n %v: variance %v, want %v times %v to %v", row.Place, row.Share, row.Granularity, row.Samples,
				v, row.ModelVariance, low, high)
		}
	}
	if checked < 80 {
		t.Errorf("variances of %d settings compared", checked)
	}
	if i := r.Intervals; math.Abs(i.Variance/i.ModelVariance-1) > 0.05 {
		t.Errorf("shares of intervals vary by %v, want %v", i.Variance, i.ModelVariance)
	}
}

// chiSquared is how many times the true variance a measured one is at the
// normal deviate z, of so many degrees of freedom (Wilson and Hilferty).
func chiSquared(degrees int, z float64) float64 {
	part := 2 / (9 * float64(degrees))
	return math.Pow(1-part+z*math.Sqrt(part), 3)
}

// Each cell of the paper is there, once for each design.
func TestEverySettingIsThere(t *testing.T) {
	r := run(t, Options{Seed: 1, Repetitions: 2})
	counts := map[string]int{}
	for _, row := range r.Rows {
		counts[row.Place]++
		if row.Paper == "" {
			t.Errorf("%s: neither the paper's figure nor a word that there is none", row.Place)
		}
	}
	want := map[string]int{
		"Table 2": 6 * 3, "Table 3": 12 * 3, SingleSample: 18, EffectOfN: 6,
		"Table 4": 4 * 2, "Table 5": 3 * 4 * 2, "Table 6": 2 * 3 * 4 * 2,
	}
	if !reflect.DeepEqual(counts, want) {
		t.Errorf("%v, want %v", counts, want)
	}
}

// What is said of the paper's figures does not depend on luck.
func TestClaims(t *testing.T) {
	for seed := range uint64(2) {
		r := run(t, Options{Seed: seed, Repetitions: 2})
		var all strings.Builder
		for _, c := range r.Claims {
			all.WriteString(c.Where + ": " + c.Paper + ": " + c.Ours + "\n")
		}
		for _, want := range []string{
			"equals 0.004", "0.8*0.2 = 0.16", "sqrt(0.16/10000) = 0.0040",
			"at frac(R) = 0.5: 0.25",
			"on one side: 0.02275",
			"a width of 0.0223", "width is 6.7 of what one state gives (0.00335), 5.6 of what new states give (0.00400)",
			"0.3432 and 0.5560", "572 whole stretches of 30 and 0.0560 is 10 of 280",
		} {
			if !strings.Contains(all.String(), want) {
				t.Errorf("seed %d: %q is not said in\n%s", seed, want, all.String())
			}
		}
		task1, task4 := r.spread(1), r.spread(4)
		if off := task4.off(paperTask4); off < 15 {
			t.Errorf("seed %d: %v is only %.1f deviations off, and called impossible", seed, paperTask4, off)
		}
		if a, b := task1.off(paperTask1), task4.off(0.0560); math.Abs(a) > 3.5 || math.Abs(b) > 3.5 {
			t.Errorf("seed %d: shares called rare are %.1f and %.1f deviations off", seed, a, b)
		}
	}
}

func TestRunIsOfItsSeed(t *testing.T) {
	one, same, other := run(t, Options{Seed: 5, Repetitions: 3}), run(t, Options{Seed: 5, Repetitions: 3}), run(t, Options{Seed: 6, Repetitions: 3})
	if !reflect.DeepEqual(one, same) {
		t.Error("one seed gave two reports")
	}
	if one.Rows[0].Mean == other.Rows[0].Mean {
		t.Error("two seeds gave one report")
	}
}

func TestRunRefuses(t *testing.T) {
	if _, err := Run(t.Context(), Options{Repetitions: 1}); err == nil || !strings.Contains(err.Error(), "simulate 1 repetitions: want 2 or more") {
		t.Errorf("one repetition: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Run(ended, Options{}); err == nil {
		t.Error("a run that was ended gave a report")
	}
}
