// Package provisionerpb defines the protocol between the server and its provisioners (provisioner.proto), and what both
// ends conclude from its messages.
package provisionerpb

import "fmt"

// Over returns a sentence if a build of the owner that costs so many credits a day exceeds the quota, otherwise "". A
// nil quota is not exceeded.
func (q *Quota) Over(owner string, cost int64) string {
	if q == nil || cost <= 0 || q.GetUsed()+cost <= q.GetAllowance() {
		return ""
	}
	return fmt.Sprintf("This build needs %d credits a day; %s uses %d of %d.", cost, owner, q.GetUsed(),
		q.GetAllowance())
}
