// Command work is a service in Go that answers a little, then waits. The argument is parts of a CPU in thousandths.
package main

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"
)

type order struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Items []string `json:"items"`
}

var digits = regexp.MustCompile(`[0-9]+`)

func make1(n int) []order {
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{ID: rand.IntN(1e6), Name: "customer " + strconv.Itoa(rand.IntN(500)), Items: []string{"a" + strconv.Itoa(i), "b"}}
	}
	return orders
}

func rank(orders []order) {
	sort.Slice(orders, func(i, j int) bool {
		return strings.Compare(orders[i].Name, orders[j].Name) < 0 || orders[i].ID < orders[j].ID
	})
}

func serve() int {
	orders := make1(40)
	rank(orders)
	text, err := json.Marshal(orders)
	if err != nil {
		panic(err)
	}
	var back []order
	if err := json.Unmarshal(text, &back); err != nil {
		panic(err)
	}
	return len(digits.FindAllString(string(text), -1)) + len(back)
}

func main() {
	share := 0.02
	if len(os.Args) > 1 {
		if thousandths, err := strconv.Atoi(os.Args[1]); err == nil {
			share = float64(thousandths) / 1000
		}
	}
	for {
		began := time.Now()
		for range 8 {
			serve()
		}
		worked := time.Since(began)
		time.Sleep(time.Duration(float64(min(worked, 10*time.Millisecond)) / share * (0.5 + rand.Float64())))
	}
}
