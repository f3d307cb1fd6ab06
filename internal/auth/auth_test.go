package auth

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRoles(t *testing.T) {
	may := map[[2]Role]bool{{Agent, Agent}: true, {Reader, Reader}: true, {Operator, Operator}: true, {Operator, Agent}: true, {Operator, Reader}: true}
	for _, has := range []Role{Agent, Reader, Operator, ""} {
		for _, needs := range []Role{Agent, Reader, Operator} {
			if got := has.May(needs); got != may[[2]Role{has, needs}] {
				t.Errorf("%q where %q is needed: %v", has, needs, got)
			}
		}
	}
}

func TestTenantNames(t *testing.T) {
	for name, ok := range map[string]bool{"default": true, "a": true, "team-7": true, "": false, "-a": false, "a-": false, "A": false,
		"..": false, "a/b": false, "a.b": false, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := CheckTenant(name); (err == nil) != ok {
			t.Errorf("tenant %q: %v", name, err)
		}
	}
}

var quiet = slog.New(slog.DiscardHandler)

// TestTokens has a file known, follows its changes, and keeps what was known
// where a change makes no sense.
func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	now := time.Unix(1_000_000, 0)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
	}
	line := func(token string, who Identity) string {
		l, err := Line(token, who)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one, two := NewToken(), NewToken()
	rack, team := Identity{"default", Agent, "rack 7"}, Identity{"team-a", Reader, ""}
	write("# whose\n\n" + line(one, rack))
	tokens, err := OpenTokens(path, func() time.Time { return now }, quiet)
	if err != nil {
		t.Fatal(err)
	}
	check := func(token string, want Identity, known bool) {
		t.Helper()
		if who, ok := tokens.Holder(token); ok != known || known && who != want {
			t.Errorf("a token is known %v, as %+v; want %v, %+v", ok, who, known, want)
		}
	}
	check(one, rack, true)
	check(two, team, false)
	check("", team, false)
	write(line(two, team) + "a line without sense\n")
	check(one, rack, true)
	check(two, team, false)
	if tokens.Failed() != 1 {
		t.Errorf("the file could not be read %d times, want 1", tokens.Failed())
	}
	write(line(two, team))
	check(one, rack, false)
	check(two, team, true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	check(two, team, true)
	tokens.Add(one, rack)
	check(one, rack, true)
}

func TestTokensRefused(t *testing.T) {
	good, err := Line("t", Identity{Tenant: "default", Role: Agent})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		good + good:                                        "line 2: a token that another line has",
		"default agent":                                    "line 1: want a tenant",
		"default boss " + good[16:]:                        "role",
		"../x agent " + good[16:]:                          "tenant",
		"default agent " + NewToken():                      "not the token itself",
		strings.TrimSpace(good) + strings.Repeat(" x", 60): "name",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := errors.Join(os.WriteFile(path, []byte(good), 0o600), os.Chmod(path, 0o622)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTokens(path, time.Now, quiet); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a file that others may write: %v", err)
	}
	for _, name := range []string{"a\nb", "a#b", strings.Repeat("x", 101)} {
		if _, err := Line("t", Identity{Tenant: "default", Role: Agent, Name: name}); err == nil {
			t.Errorf("name %q is taken", name)
		}
	}
}

// FuzzTokens writes what it reads: the same is read again.
func FuzzTokens(f *testing.F) {
	good, err := Line("t", Identity{"default", Agent, "rack 7"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("# remark\n" + good + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		known, err := parse(text)
		if err != nil {
			return
		}
		for _, who := range known {
			token := NewToken()
			line, err := Line(token, who)
			if err != nil {
				t.Fatalf("%+v was read, and cannot be written: %v", who, err)
			}
			again, err := parse(line)
			if err != nil || len(again) != 1 {
				t.Fatalf("%q: %v", line, err)
			}
			for _, got := range again {
				if got != who {
					t.Fatalf("%+v comes back as %+v", who, got)
				}
			}
		}
	})
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "operator.token")
	made, err := KeepSecret(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	if again, err := KeepSecret(path); err != nil || again != made {
		t.Errorf("%q, %v: want %q", again, err, made)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := KeepSecret(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("one that others may read: %v", err)
	}
	for _, text := range []string{"", "\n", "two words"} {
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(bad, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadSecret(bad); err == nil {
			t.Errorf("%q holds %q", text, got)
		}
	}
}

// TestLimit lets a burst through, then so many a second, of each alone.
func TestLimit(t *testing.T) {
	now := time.Unix(0, 0)
	l := &Limit{Rate: 2, Burst: 5, Now: func() time.Time { return now }}
	who := Identity{Tenant: "default", Role: Agent}
	take := func(n int, remote string) (got int) {
		for range n {
			if l.allow(who, remote) {
				got++
			}
		}
		return got
	}
	if got := take(20, "10.0.0.1:5"); got != 5 {
		t.Errorf("%d at once, want 5", got)
	}
	if got := take(20, "10.0.0.2:5"); got != 5 {
		t.Errorf("%d of another, want 5", got)
	}
	now = now.Add(time.Second)
	if got := take(20, "10.0.0.1:6"); got != 2 {
		t.Errorf("%d a second later, want 2", got)
	}
	now = now.Add(-time.Hour)
	if got := take(20, "10.0.0.1:6"); got != 0 {
		t.Errorf("%d when the clock goes back", got)
	}
	for i := range maxAskers + 10 {
		who.Name = strings.Repeat("x", i%7) + time.Duration(i).String()
		take(1, "10.0.0.3:1")
	}
	if len(l.left) > maxAskers {
		t.Errorf("%d are remembered", len(l.left))
	}
	if !(&Limit{}).allow(who, "") || !(*Limit)(nil).allow(who, "") {
		t.Error("no limit refuses")
	}
}

// TestSecretOfAStranger refuses a token that somebody else may have chosen.
func TestSecretOfAStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "operator.token")
	if err := errors.Join(WriteSecret(path, "chosen"), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if got, err := KeepSecret(path); err == nil || !strings.Contains(err.Error(), "chown") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestHeldSecret believes a token's file for as long as somebody holds it.
func TestHeldSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "127.0.0.1_1.token")
	leave, err := HoldSecret(path, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // looking does not take it
		if got, err := ReadHeldSecret(path); err != nil || got != "secret" {
			t.Errorf("%q, %v", got, err)
		}
	}
	leave()
	if _, err := os.Stat(path); err == nil {
		t.Error("it is still there")
	}
	if err := WriteSecret(path, "of one that was killed"); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadHeldSecret(path); err == nil {
		t.Errorf("%q is believed, which nobody holds", got)
	}
}

// TestSecretsOfTheKilledAreSwept has files go that nobody holds, and no others.
func TestSecretsOfTheKilledAreSwept(t *testing.T) {
	dir := t.TempDir()
	held := filepath.Join(dir, "127.0.0.1_1.token")
	leave, err := HoldSecret(held, "held")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	for name, stays := range map[string]bool{"127.0.0.1_2.token": false, "--1_4300.token": false, ".token-123456": false, "operator.token": true, "my_2.token": true} {
		if err := WriteSecret(filepath.Join(dir, name), "of one that was killed"); err != nil {
			t.Fatal(err)
		}
		leave, err := HoldSecret(filepath.Join(dir, "127.0.0.1_3.token"), "next")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
		leave()
	}
	if got, err := ReadHeldSecret(held); err != nil || got != "held" {
		t.Errorf("one that is held: %q, %v", got, err)
	}
}

// TestBearer tells its token to one server alone.
func TestBearer(t *testing.T) {
	var told []string
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = append(told, r.Header.Get("Authorization")) })
	ours, other := httptest.NewServer(h), httptest.NewServer(h)
	defer ours.Close()
	defer other.Close()
	b := &Bearer{Token: func() (string, error) { return "secret", nil }, Scheme: "http", Host: ours.Listener.Addr().String(), Next: http.DefaultTransport}
	get := func(url string) {
		t.Helper()
		answer, err := (&http.Client{Transport: b}).Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	get(ours.URL)
	get(other.URL)
	b.Scheme = "https"
	get(ours.URL)
	if len(told) != 3 || told[0] != "Bearer secret" || told[1] != "" || told[2] != "" {
		t.Errorf("told %q", told)
	}
}
