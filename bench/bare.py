"""A FastAPI application with nothing in it: what memory and start-up are measured against."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

app = FastAPI()


@app.post("/validate")
async def validate(review: dict[str, Any]) -> dict[str, Any]:
    """Say yes."""
    response = {"uid": review["request"]["uid"], "allowed": True}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


@app.get("/readyz")
async def readyz() -> str:
    """Say yes."""
    return "ok"
