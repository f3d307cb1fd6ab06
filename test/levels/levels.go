// Package levels asserts that results do not depend on how many relays windows pass, and what these add up.
package levels
