// Package levels compares answers with those of a model, however many relays windows pass, and whatever these add up.
package levels
