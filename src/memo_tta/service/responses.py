"""JSON responses, built from results and from the model."""

from typing import Any

from memo_tta.methods import Prediction
from memo_tta.service.model import ServedModel
from memo_tta.service.pool import Pool
from memo_tta.service.replica import PredictionRequest, PredictionResult
from memo_tta.service.uploaded_image import FORMATS

STAGES = ("queue", "decode", "source", "views", "model", "predict", "total")


def prediction_response(request: PredictionRequest, result: PredictionResult, top_k: int) -> dict[str, Any]:
    """Return the fields of a PredictResponse."""
    prediction = result.prediction
    return {
        **_summary(prediction, top_k),
        "source": _summary(prediction.source, top_k),
        "adapted": prediction.adapted,
        "status": prediction.status,
        "reason": prediction.reason,
        "marginal_entropy": prediction.marginal_entropy,
        "shift": prediction.shift,
        "clean_shift": prediction.clean_shift,
        "method": request.method,
        "n_views": request.options.get("n_views"),
        "seed": request.options["seed"],
        "timings": {f"{stage}_ms": round(1000 * result.seconds.get(stage, 0.0), 3) for stage in STAGES},
        "views": _views(result) if request.explain else None,
    }


def _summary(prediction: Prediction, top_k: int) -> dict[str, Any]:
    return {
        "label": prediction.label,
        "index": prediction.index,
        "score": prediction.score,
        "entropy": max(0.0, prediction.entropy),  # rounding can make it slightly negative
        "top": prediction.top(top_k),
    }


def _views(result: PredictionResult) -> list[dict[str, Any]]:
    return [
        {
            "thumbnail": thumbnail,
            "before": {"label": before.label, "score": before.score},
            "after": {"label": after.label, "score": after.score},
        }
        for thumbnail, before, after in zip(result.thumbnails, result.before, result.after, strict=True)
    ]


def model_response(served_model: ServedModel, pool: Pool) -> dict[str, Any]:
    """Return the fields of a ModelResponse."""
    classifier, settings = served_model.classifier, served_model.settings
    return {
        "model": served_model.name,
        "fingerprint": served_model.fingerprint,
        "replica_fingerprints": pool.fingerprints(),
        "parameters": sum(p.numel() for p in classifier.module.parameters()),
        "input_size": classifier.size if isinstance(classifier.size, int) else list(classifier.size or ()),
        "labels": classifier.labels and list(classifier.labels),
        "method": settings.method,
        "methods": served_model.methods,
        "options": {name: settings.options.get(name, {}) for name in served_model.methods},
        "replicas": settings.replicas,
        "limits": {
            "max_views": settings.max_views,
            "max_batch": settings.max_batch,
            "deadline_ms": settings.deadline_ms,
            "max_body_bytes": settings.max_body,
            "max_pixels": settings.max_pixels,
            "formats": list(FORMATS),
        },
    }
