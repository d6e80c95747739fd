package core

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const domain = "contextd.dev"

// Problem is what a status says, read from its details.
type Problem struct {
	Code         codes.Code
	Message      string
	Reason       string
	Metadata     map[string]string
	Fields       []*errdetails.BadRequest_FieldViolation
	Quotas       []*errdetails.QuotaFailure_Violation
	RetryAfter   time.Duration
	ResourceType string
	ResourceName string
	RequestID    string
	// Status is what all of this was read from; nil for a problem that was found on this side.
	Status *status.Status
}

// ProblemOf reads the error of a call.
func ProblemOf(err error) *Problem {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = status.FromContextError(err).Err()
	}
	found := status.Convert(err)
	problem := &Problem{Code: found.Code(), Message: found.Message(), Status: found}
	for _, detail := range found.Details() {
		problem.read(detail)
	}
	return problem
}

func (p *Problem) read(detail any) {
	switch detail := detail.(type) {
	case *errdetails.ErrorInfo:
		if detail.GetDomain() == domain {
			p.Reason, p.Metadata = detail.GetReason(), detail.GetMetadata()
		}
	case *errdetails.BadRequest:
		p.Fields = detail.GetFieldViolations()
	case *errdetails.QuotaFailure:
		p.Quotas = detail.GetViolations()
	case *errdetails.RetryInfo:
		p.RetryAfter = detail.GetRetryDelay().AsDuration()
	case *errdetails.ResourceInfo:
		p.ResourceType, p.ResourceName = detail.GetResourceType(), detail.GetResourceName()
	case *errdetails.RequestInfo:
		p.RequestID = detail.GetRequestId()
	}
}

// MayPass says whether the same request may succeed a moment later.
func (p *Problem) MayPass() bool {
	return (p.Code == codes.Unavailable || p.Code == codes.DeadlineExceeded) && p.Reason != "PROVIDER_FAILED"
}

// IsBrokenTransport says whether the connection failed, rather than the request: a proxy or a broken connection may
// leave such a code of a stream, and nothing of contextd. From contextd itself they are errors like any other.
func (p *Problem) IsBrokenTransport() bool {
	return (p.Code == codes.Internal || p.Code == codes.Unknown || p.Code == codes.Canceled) && p.Reason == ""
}

func unavailable(message string) *Problem {
	return &Problem{Code: codes.Unavailable, Message: message}
}
